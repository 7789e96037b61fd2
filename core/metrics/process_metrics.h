// Metrics of every process: processor time, memory, files, and the disks of its directories. Values
// are read from the system at each scrape.
#pragma once

#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/metrics/metrics.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class ProcessMetrics {
 public:
  // `metrics` is not owned and outlives this object.
  explicit ProcessMetrics(Metrics& metrics);

  // From now on the files in `path` are counted, and what is free on their disk. `name` is the
  // value of the label `directory`.
  void Watch(const std::string& name, const std::string& path);
  // Sets embla_node_info; the values of the call before go.
  void SetNode(const std::string& node, const std::string& cluster);

  // Reads everything again: before each scrape.
  void Refresh();

 private:
  struct Directory {
    std::string path;
    Gauge bytes;
    Gauge free_bytes;
  };

  Metrics& metrics_;  // Not owned; outlives this object.
  const Counter cpu_;
  const Gauge memory_;
  const Gauge descriptors_;
  const Gauge threads_;

  Mutex mu_;
  std::vector<Directory> directories_ ABSL_GUARDED_BY(mu_);
  std::string node_ ABSL_GUARDED_BY(mu_);
  std::string cluster_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
