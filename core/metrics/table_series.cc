#include "core/metrics/table_series.h"

#include <algorithm>

#include "core/base/check.h"

namespace embla {

struct TableSeries::User {
  User(TableLabels& labels, std::string_view name)
      : labels(labels),
        table(name),
        is_grouped(labels.Join(table)),
        label(is_grouped ? std::string(TableLabels::kOther) : table) {}
  ~User() { labels.Leave(table); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  TableLabels& labels;
  const std::string table;
  const bool is_grouped;
  const std::string label;
};

bool TableLabels::Join(const std::string& name) {
  const MutexLock lock(mu_);
  const auto [it, is_new] = tables_.try_emplace(name);
  Table& table = it->second;
  if (is_new) {
    const std::size_t own = labels_.size() - labels_.count(std::string(kOther));
    table.is_grouped = name == kOther || own >= tables_max_;
  }
  ++table.users;
  ++labels_[table.is_grouped ? std::string(kOther) : name].users;
  return table.is_grouped;
}

void TableLabels::Leave(const std::string& name) {
  const MutexLock lock(mu_);
  const auto table = tables_.find(name);
  const auto label = labels_.find(table->second.is_grouped ? std::string(kOther) : name);
  if (--table->second.users == 0) tables_.erase(table);
  if (--label->second.users > 0) return;
  for (const Made& made : label->second.series) Remove(label->first, made);
  labels_.erase(label);
}

void TableLabels::Remove(const std::string& label, const Made& made) {
  if (made.info->label_count() == 1) return metrics_.Remove(*made.info, {label});
  metrics_.Remove(*made.info, {label, made.second});
}

template <typename Make>
auto TableLabels::MakeSeries(const std::string& label, const MetricInfo& info,
                             std::string_view second, const Make& make) {
  EMBLA_CHECK(info.labels[0] == "table");
  const MutexLock lock(mu_);
  std::vector<Made>& series = labels_[label].series;
  Made made{&info, std::string(second)};
  if (std::find(series.begin(), series.end(), made) == series.end()) {
    series.push_back(std::move(made));
  }
  if (info.label_count() == 1) return make(Metrics::LabelValues{label});
  return make(Metrics::LabelValues{label, second});
}

TableSeries::TableSeries(Metrics* metrics, std::string_view table) {
  if (metrics != nullptr) user_ = std::make_shared<const User>(metrics->table_labels(), table);
}

Counter TableSeries::MakeCounter(const MetricInfo& info, std::string_view second) const {
  if (user_ == nullptr) return {};
  TableLabels& labels = user_->labels;
  return labels.MakeSeries(user_->label, info, second, [&](Metrics::LabelValues values) {
    return labels.metrics_.MakeCounter(info, values);
  });
}

Gauge TableSeries::MakeGauge(const MetricInfo& info, std::string_view second) const {
  if (user_ == nullptr) return {};
  TableLabels& labels = user_->labels;
  const Gauge gauge = labels.MakeSeries(
      user_->label, info, second,
      [&](Metrics::LabelValues values) { return labels.metrics_.MakeGauge(info, values); });
  return user_->is_grouped ? gauge.MakeShare(user_) : gauge;
}

Histogram TableSeries::MakeHistogram(const MetricInfo& info, std::string_view second) const {
  if (user_ == nullptr) return {};
  TableLabels& labels = user_->labels;
  return labels.MakeSeries(user_->label, info, second, [&](Metrics::LabelValues values) {
    return labels.metrics_.MakeHistogram(info, values);
  });
}

bool TableSeries::is_grouped() const { return user_ != nullptr && user_->is_grouped; }

}  // namespace embla
