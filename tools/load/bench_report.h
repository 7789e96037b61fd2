// The results of a benchmark run, as a table for people and as JSON.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/load/bench_run.h"

namespace embla::load {

// "Intel(R) Xeon(R) ... x 2": processor and number of cores.
std::string MachineName();

void PrintResults(const std::vector<CaseResult>& results, std::ostream& out);
// docs/benchmarks.md quotes these fields. Times in microseconds, CPU in seconds per million rows.
std::string ResultsToJson(const std::vector<CaseResult>& results, const RunSettings& settings);

}  // namespace embla::load
