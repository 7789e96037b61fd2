// Contenders timed in interleaved rounds on fresh random rows, so that what else the machine does
// hits all of them alike; then medians, and each one's rate as a share of the best ceiling's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace embla::bench {

struct Contender {
  std::string name;
  bool ceiling = false;
  // A contender is divided by the ceiling of the same kind that has the best median.
  std::string kind;
  // Does the work of one round on these slots.
  std::function<void(std::span<const std::uint32_t> slots)> run;
};

// One line of the report.
struct RoundsResult {
  std::string setting;  // For instance "dim:64".
  std::string name;
  double rows_per_second = 0.0;
  double bytes_per_second = 0.0;
  double ratio = 0.0;  // Ratio to the ceiling; its median over rounds. 1 for the ceiling itself.
};

struct RoundsOptions {
  int rounds = 9;
  std::size_t rows_per_round = 1 << 18;
  std::uint32_t table_rows = 0;
  std::size_t bytes_per_row = 0;  // Bytes moved for a row, for bytes_per_second.
  std::size_t batch = 4096;       // Each batch of slots is ascending when `sorted`.
  bool sorted = false;            // Unique as well.
  std::uint64_t seed = 1;
};

// Times contenders by this thread's processor time. Each gets a different permutation of the same
// number of rows, none twice, so that no one finds rows in cache that another has read.
std::vector<RoundsResult> RunRounds(const std::string& setting,
                                    const std::vector<Contender>& contenders,
                                    const RoundsOptions& options);

// Prints all results as a table, or as JSON with machine and command.
void PrintResults(const std::vector<RoundsResult>& results, bool json, const std::string& question);

}  // namespace embla::bench
