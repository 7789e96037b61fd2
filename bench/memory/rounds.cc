#include "bench/memory/rounds.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <random>

namespace embla::bench {
namespace {

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void FillSlots(const RoundsOptions& options, std::mt19937_64& random,
               std::vector<std::uint32_t>& slots) {
  slots.resize(options.rows_per_round);
  for (auto& slot : slots) slot = static_cast<std::uint32_t>(random() % options.table_rows);
  if (!options.sorted) return;
  for (std::size_t begin = 0; begin < slots.size(); begin += options.batch) {
    const auto first = slots.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        first + static_cast<std::ptrdiff_t>(std::min(options.batch, slots.size() - begin));
    std::sort(first, last);
    // A slot drawn twice moves to the next free one, which keeps the batch ascending.
    for (auto it = first; it + 1 != last; ++it) it[1] = std::max(it[1], *it + 1);
    for (auto it = last; it-- != first;) {
      const auto room = static_cast<std::uint32_t>(last - it);
      *it = std::min(*it, options.table_rows - room);
    }
  }
}

std::string Processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

std::vector<RoundsResult> RunRounds(const std::string& setting,
                                    const std::vector<Contender>& contenders,
                                    const RoundsOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<std::uint32_t> slots;
  std::vector<std::vector<double>> seconds(contenders.size());
  for (int round = -1; round < options.rounds; ++round) {  // Round -1 warms up.
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      FillSlots(options, random, slots);
      const double start = ThreadSeconds();
      contenders[i].run(slots);
      if (round >= 0) seconds[i].push_back(ThreadSeconds() - start);
    }
  }
  // The ceiling with the best median of each kind: the best of every single round would be luck.
  std::map<std::string, std::size_t> best;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (!contenders[i].ceiling) continue;
    const auto [kind, first] = best.emplace(contenders[i].kind, i);
    if (!first && Median(seconds[i]) < Median(seconds[kind->second])) kind->second = i;
  }
  std::vector<RoundsResult> results;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const std::vector<double>& ceiling = seconds[best[contenders[i].kind]];
    std::vector<double> ratios;
    for (std::size_t r = 0; r < ceiling.size(); ++r) ratios.push_back(ceiling[r] / seconds[i][r]);
    const double rate = static_cast<double>(options.rows_per_round) / Median(seconds[i]);
    results.push_back({setting, contenders[i].name, rate,
                       rate * static_cast<double>(options.bytes_per_row), Median(ratios)});
  }
  return results;
}

void PrintResults(const std::vector<RoundsResult>& results, bool json,
                  const std::string& question) {
  if (!json) {
    std::printf("%s\n%-10s %-28s %12s %10s %8s\n", question.c_str(), "setting", "what", "Mrows/s",
                "GB/s", "ratio");
    for (const RoundsResult& r : results) {
      std::printf("%-10s %-28s %12.2f %10.2f %8.2f\n", r.setting.c_str(), r.name.c_str(),
                  r.rows_per_second / 1e6, r.bytes_per_second / 1e9, r.ratio);
    }
    return;
  }
  std::printf("{\"question\": \"%s\", \"processor\": \"%s\", \"commit\": \"%s\", \"results\": [",
              question.c_str(), Processor().c_str(), EMBLA_COMMIT);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RoundsResult& r = results[i];
    std::printf(
        "%s\n  {\"setting\": \"%s\", \"what\": \"%s\", \"rows_per_second\": %.0f, "
        "\"bytes_per_second\": %.0f, \"ratio\": %.4f}",
        i == 0 ? "" : ",", r.setting.c_str(), r.name.c_str(), r.rows_per_second, r.bytes_per_second,
        r.ratio);
  }
  std::printf("\n]}\n");
}

}  // namespace embla::bench
