// The series of tables: those whose first label is `table`. A process has tables by the thousand,
// and they come and go, so these series are bounded in two ways. They exist as long as somebody
// counts with them, and at most TableLabels' number of tables have series of their own: the others
// share those with the label `other`, which hold their sums.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/metrics/metrics.h"

namespace embla {

// Makes the series of one Metrics that have a label `table`. Thread safety: every method may be
// called from any thread.
class TableLabels {
 public:
  // The label of tables that have no series of their own. A table of that name is one of them.
  static constexpr std::string_view kOther = "other";

  TableLabels(Metrics& metrics, std::size_t tables_max)
      : metrics_(metrics), tables_max_(tables_max) {}

 private:
  friend class TableSeries;
  struct Made {
    const MetricInfo* info = nullptr;
    std::string second;
    bool operator==(const Made&) const = default;
  };
  struct Label {
    std::size_t users = 0;
    std::vector<Made> series;
  };
  struct Table {
    std::size_t users = 0;
    bool is_grouped = false;
  };

  // Whether the table's label is kOther.
  bool Join(const std::string& table);
  void Leave(const std::string& table);
  // Calls make(label), and notes that the label has the series.
  template <typename Make>
  auto MakeSeries(const std::string& label, const MetricInfo& info, std::string_view second,
                  const Make& make);
  void Remove(const std::string& label, const Made& made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Metrics& metrics_;  // Not owned; outlives this object.
  const std::size_t tables_max_;

  Mutex mu_;
  std::map<std::string, Table> tables_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Label> labels_ ABSL_GUARDED_BY(mu_);
};

// One user of a table's series. Copies are the same user. The owner of a handle from here keeps the
// TableSeries as long: a label's series are deleted with its last user.
class TableSeries {
 public:
  TableSeries() = default;  // Its handles count nothing.
  // `metrics` may be null: the same.
  TableSeries(Metrics* metrics, std::string_view table);

  // The series of `info` of this table. Requires: info.labels[0] is `table`; `second` is the value
  // of labels[1], empty where there is none.
  Counter MakeCounter(const MetricInfo& info, std::string_view second = {}) const;
  Gauge MakeGauge(const MetricInfo& info, std::string_view second = {}) const;
  Histogram MakeHistogram(const MetricInfo& info, std::string_view second = {}) const;

  // The table shares its series with others: a value that cannot be added has no meaning there.
  bool is_grouped() const;

 private:
  struct User;
  std::shared_ptr<const User> user_;  // Null: counts nothing.
};

}  // namespace embla
