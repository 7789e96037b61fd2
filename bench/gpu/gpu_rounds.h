// Contenders timed on the device in interleaved rounds, each on batches that take turns; then
// medians, and what they are of the ceilings that were measured between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/workload.h"

namespace embla::bench {

struct GpuContender {
  std::string name;
  // Queues the work for batch `batch` on the default stream.
  std::function<void(std::size_t batch)> queue;
  MovedBytes bytes;
  std::size_t ids = 0;
  std::string aim;
};

// Ceilings that the contenders are divided by. Two copies, of which the faster one counts: an own
// kernel alone would flatter.
struct GpuCeilings {
  GpuContender copy;  // Copies bytes, which are read and written.
  GpuContender driver_copy;
  GpuContender random;  // The same rows, and nothing else.
};

struct GpuResult {
  std::string workload;
  std::string what;
  double us = 0.0;  // Per batch, median over rounds.
  std::size_t ids = 0;
  MovedBytes bytes;
  double of_copy = 0.0;    // Floor bytes per second, as a share of the copy's.
  double of_random = 0.0;  // The random ceiling's time, as a share of this one's.
  std::string aim;
};

struct GpuRoundsOptions {
  int rounds = 15;
  int repeats = 8;  // Batches of a round; a round is timed as a whole.
  std::size_t batches = 4;
};

std::vector<GpuResult> RunGpuRounds(const std::string& workload, const GpuCeilings& ceilings,
                                    const std::vector<GpuContender>& contenders,
                                    const GpuRoundsOptions& options);

// A table of `question`'s answers; and, unless json_file is empty, the same as JSON with device and
// commit there. False: that file cannot be written.
bool ReportGpuResults(const std::vector<GpuResult>& results, const std::string& question,
                      const std::string& json_file);

}  // namespace embla::bench
