// Counters, gauges and histograms of one process, on prometheus-cpp.
//
// Handles are made once per label set (a map lookup under a lock) and kept by the code that counts;
// counting is then a handful of atomic instructions. A default-made handle counts nothing, so a
// room that is tested alone needs no Metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "core/metrics/names.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace embla {

class TableLabels;

// Handles: small, copyable, thread safe. Their Metrics outlives them.
class Counter {
 public:
  Counter() = default;
  // Requires: by >= 0.
  void Add(double by = 1) const;
  double value() const;
  bool counts() const { return series_ != nullptr; }

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter* series) : series_(series) {}
  prometheus::Counter* series_ = nullptr;  // Not owned.
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value) const;
  void Add(double by) const;  // Negative to go down.
  double value() const;       // The value of the series; a share returns its own part.
  // A gauge that adds its value to the series, which others do, too: the series is their sum. Its
  // part of the sum ends with its last copy. `series_user` is kept as long.
  Gauge MakeShare(std::shared_ptr<const void> series_user) const;

 private:
  friend class Metrics;
  class Share;
  explicit Gauge(prometheus::Gauge* series) : series_(series) {}
  prometheus::Gauge* series_ = nullptr;  // Not owned.
  std::shared_ptr<Share> share_;         // Null: the series is this gauge's alone.
};

class Histogram {
 public:
  // How many observations there were, by size.
  struct Bucket {
    double seconds_max = 0;        // Infinite in the last one.
    std::uint64_t cumulative = 0;  // Observations up to seconds_max.
  };

  Histogram() = default;
  void Observe(absl::Duration duration) const;
  std::vector<Bucket> buckets() const;  // Empty: it counts nothing.

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram* series) : series_(series) {}
  prometheus::Histogram* series_ = nullptr;  // Not owned.
};

// Thread safety: every method may be called from any thread.
class Metrics {
 public:
  using LabelValues = std::initializer_list<std::string_view>;

  // Tables that have series of their own, at most (table_series.h): about 10 each, so 5,000 series.
  static constexpr std::size_t kTablesMax = 500;

  explicit Metrics(std::size_t tables_max = kTablesMax);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The series of `info` with these label values, in the order of info.labels. The same values give
  // the same series. A series stays until it is removed.
  // Requires: info is one of AllMetrics() and of that kind; one value per label.
  Counter MakeCounter(const MetricInfo& info, LabelValues values = {});
  Gauge MakeGauge(const MetricInfo& info, LabelValues values = {});
  Histogram MakeHistogram(const MetricInfo& info, LabelValues values = {});
  // Deletes the series; handles of it must not be used any more.
  void Remove(const MetricInfo& info, LabelValues values);
  // Makes the series with a label `table`: see TableSeries.
  TableLabels& table_labels() { return *table_labels_; }

  // The values of a counter with one label, by the label's value.
  std::map<std::string, double> CounterValues(const MetricInfo& info) const;
  // Everything in Prometheus' text format.
  std::string Text() const;

  // For the exposer.
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<TableLabels> table_labels_;
};

}  // namespace embla
