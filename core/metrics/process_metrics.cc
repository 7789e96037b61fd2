#include "core/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/metrics/names.h"

namespace embla {
namespace {

double CpuSeconds() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Fields of /proc/self/stat, whose second field may have blanks, in brackets: number of threads,
// clock ticks from the machine's start to the process', resident pages.
struct SelfStat {
  double threads = 0;
  double start_ticks = 0;
  double resident_pages = 0;
};
SelfStat ReadSelfStat() {
  std::stringstream text;
  text << std::ifstream("/proc/self/stat").rdbuf();
  const std::string all = text.str();
  std::istringstream rest(all.substr(std::min(all.rfind(')') + 1, all.size())));
  SelfStat stat;
  std::string word;
  for (int field = 3; rest >> word; ++field) {
    if (field == 20) stat.threads = std::atof(word.c_str());
    if (field == 22) stat.start_ticks = std::atof(word.c_str());
    if (field == 24) stat.resident_pages = std::atof(word.c_str());
  }
  return stat;
}

double UnixStart() {
  double up = 0;
  std::ifstream("/proc/uptime") >> up;
  const double since = up - ReadSelfStat().start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - since;
}

double CountDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  return error ? 0 : static_cast<double>(std::distance(begin(entries), end(entries)));
}

}  // namespace

ProcessMetrics::ProcessMetrics(Metrics& metrics)
    : metrics_(metrics),
      cpu_(metrics.MakeCounter(MetricNamed("process_cpu_seconds_total"))),
      memory_(metrics.MakeGauge(MetricNamed("process_resident_memory_bytes"))),
      descriptors_(metrics.MakeGauge(MetricNamed("process_open_fds"))),
      threads_(metrics.MakeGauge(MetricNamed("process_threads"))) {
  metrics.MakeGauge(MetricNamed("process_start_time_seconds")).Set(UnixStart());
}

void ProcessMetrics::Watch(const std::string& name, const std::string& path) {
  const MutexLock lock(mu_);
  directories_.push_back({path, metrics_.MakeGauge(MetricNamed("embla_directory_bytes"), {name}),
                          metrics_.MakeGauge(MetricNamed("embla_disk_free_bytes"), {name})});
}

void ProcessMetrics::SetNode(const std::string& node, const std::string& cluster) {
  const MutexLock lock(mu_);
  if (!node_.empty() || !cluster_.empty()) {
    metrics_.Remove(MetricNamed("embla_node_info"), {node_, cluster_});
  }
  node_ = node;
  cluster_ = cluster;
  metrics_.MakeGauge(MetricNamed("embla_node_info"), {node, cluster}).Set(1);
}

void ProcessMetrics::Refresh() {
  const MutexLock lock(mu_);
  cpu_.Add(std::max(CpuSeconds() - cpu_.value(), 0.0));
  const SelfStat stat = ReadSelfStat();
  memory_.Set(stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  threads_.Set(stat.threads);
  descriptors_.Set(CountDescriptors());
  for (const Directory& directory : directories_) {
    directory.bytes.Set(static_cast<double>(BytesOfFiles(directory.path)));
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(directory.path, error);
    if (!error) directory.free_bytes.Set(static_cast<double>(space.available));
  }
}

}  // namespace embla
