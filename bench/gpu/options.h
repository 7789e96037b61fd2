// Options of the GPU benches, and how they begin and end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu/workload.h"

namespace embla::bench {

// Exit codes beside 0.
inline constexpr int kWrongResult = 1;
inline constexpr int kUsage = 2;
inline constexpr int kNoGpu = 3;

struct GpuBenchOptions {
  std::string json_file;  // Also write the results to this file; empty: do not.
  int rounds = 15;
  int repeats = 8;                 // Batches of a round.
  std::uint32_t table_mib = 8192;  // Size of a table with uniform ids.
  std::uint32_t divide = 1;        // Rows and bags of every workload.
  std::string only;                // One workload's name; empty: all.
  std::string ids_folder;          // Write ids to this folder for embedding_bag.py; empty: do not.

  bool Runs(const Workload& workload) const { return only.empty() || workload.name == only; }
  // Bytes that the copy ceiling copies.
  std::size_t copy_bytes() const { return (std::size_t{1} << 30) / divide + (64 << 10); }
  // Rows of a table with uniform ids.
  std::uint32_t UniformRows(std::size_t row_bytes) const;
};

// Ends the process: kUsage for other arguments, kNoGpu where no device is, having said so.
GpuBenchOptions BeginGpuBench(int argc, char** argv);

// Ends the process with kUsage, having said that `path` cannot be written.
[[noreturn]] void FailWriting(const std::string& path);

// Ends the process with kWrongResult, having said what gave it.
[[noreturn]] void FailVerification(const Workload& workload, const std::string& what);

// The first batch's ids, int64, table after table, and a line of workloads.jsonl that says what
// they are. Ends the process when that cannot be written.
void WriteIds(const std::string& folder, const Workload& workload,
              const std::vector<std::uint32_t>& slots);

}  // namespace embla::bench
