#include "bench/gpu/gpu_rounds.h"

#include <algorithm>
#include <cstdio>

#include "bench/gpu/device_clock.h"

namespace embla::bench {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double GigabytesPerSecond(double bytes, double us) { return us <= 0.0 ? 0.0 : bytes / us * 1e-3; }

void PrintTable(const std::vector<GpuResult>& results) {
  std::printf("%-18s %-26s %10s %10s %9s %9s %7s %9s  %s\n", "workload", "what", "us", "M ids/s",
              "floor", "nominal", "of copy", "of random", "aim");
  std::printf("%-18s %-26s %10s %10s %9s %9s\n", "", "", "", "", "GB/s", "GB/s");
  for (const GpuResult& r : results) {
    std::printf("%-18s %-26s %10.1f %10.1f %9.1f %9.1f %7.2f %9.2f  %s\n", r.workload.c_str(),
                r.what.c_str(), r.us, r.us <= 0.0 ? 0.0 : static_cast<double>(r.ids) / r.us,
                GigabytesPerSecond(r.bytes.floor, r.us), GigabytesPerSecond(r.bytes.nominal, r.us),
                r.of_copy, r.of_random, r.aim.c_str());
  }
}

}  // namespace

std::vector<GpuResult> RunGpuRounds(const std::string& workload, const GpuCeilings& ceilings,
                                    const std::vector<GpuContender>& contenders,
                                    const GpuRoundsOptions& options) {
  std::vector<const GpuContender*> all = {&ceilings.copy, &ceilings.driver_copy, &ceilings.random};
  for (const GpuContender& contender : contenders) all.push_back(&contender);
  std::vector<std::vector<double>> us(all.size());
  DeviceClock clock;
  for (int round = -1; round < options.rounds; ++round) {  // Round -1 warms up.
    for (std::size_t i = 0; i < all.size(); ++i) {
      clock.Start();
      for (int r = 0; r < options.repeats; ++r) {
        all[i]->queue(static_cast<std::size_t>(r + options.repeats * (round + 1)) %
                      options.batches);
      }
      const double passed = clock.StopUs();
      if (round >= 0) us[i].push_back(passed / options.repeats);
    }
  }
  constexpr std::size_t kRandom = 2;  // Its place in `all`.
  const double copy_rate = ceilings.copy.bytes.floor / std::min(Median(us[0]), Median(us[1]));
  std::vector<GpuResult> results;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> of_random;
    for (std::size_t r = 0; r < us[i].size(); ++r) of_random.push_back(us[kRandom][r] / us[i][r]);
    const double median = Median(us[i]);
    results.push_back({workload, all[i]->name, median, all[i]->ids, all[i]->bytes,
                       all[i]->bytes.floor / median / copy_rate,
                       i < kRandom ? 0.0 : Median(of_random), all[i]->aim});
  }
  return results;
}

bool ReportGpuResults(const std::vector<GpuResult>& results, const std::string& question,
                      const std::string& json_file) {
  std::printf("%s, on %s\n", question.c_str(), DeviceName().c_str());
  PrintTable(results);
  if (json_file.empty()) return true;
  std::FILE* const file = std::fopen(json_file.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file,
               "{\"question\": \"%s\", \"device\": \"%s\", \"commit\": \"%s\", \"results\": [",
               question.c_str(), DeviceName().c_str(), EMBLA_COMMIT);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const GpuResult& r = results[i];
    std::fprintf(
        file,
        "%s\n  {\"workload\": \"%s\", \"what\": \"%s\", \"us\": %.3f, \"ids\": %zu, "
        "\"floor_bytes\": %.0f, \"nominal_bytes\": %.0f, \"of_copy\": %.4f, \"of_random\": %.4f, "
        "\"aim\": \"%s\"}",
        i == 0 ? "" : ",", r.workload.c_str(), r.what.c_str(), r.us, r.ids, r.bytes.floor,
        r.bytes.nominal, r.of_copy, r.of_random, r.aim.c_str());
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

}  // namespace embla::bench
