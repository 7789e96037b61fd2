#include "core/metrics/metrics.h"

#include <atomic>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/metrics/table_series.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace embla {
namespace {

// Seconds. From a small lookup on loopback to a client's longest deadline.
const prometheus::Histogram::BucketBoundaries& LatencyBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      25e-6,   50e-6,   100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3,
      25.6e-3, 51.2e-3, 0.1,    0.2,    0.4,    0.8,    1.6,    3.2,    6.4,    12.8};
  return buckets;
}

prometheus::Labels LabelsOf(const MetricInfo& info, MetricKind kind,
                            const Metrics::LabelValues& values) {
  EMBLA_CHECK(info.kind == kind);
  EMBLA_CHECK(info.label_count() == values.size());
  prometheus::Labels labels;
  std::size_t i = 0;
  for (const std::string_view value : values) labels.emplace(info.labels[i++], value);
  return labels;
}

// The family of `info`; a name that is registered already gives its family.
template <typename Builder>
auto& FamilyOf(Builder builder, const MetricInfo& info, prometheus::Registry& registry) {
  return builder.Name(std::string(info.name)).Help(std::string(info.help)).Register(registry);
}

}  // namespace

void Counter::Add(double by) const {
  if (series_ != nullptr) series_->Increment(by);
}
double Counter::value() const { return series_ == nullptr ? 0 : series_->Value(); }

// One gauge's part of a series.
class Gauge::Share {
 public:
  Share(prometheus::Gauge& series, std::shared_ptr<const void> series_user)
      : series_user_(std::move(series_user)), series_(series) {}
  ~Share() { Set(0); }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  void Set(double value) { series_.Increment(value - value_.exchange(value)); }
  void Add(double by) {
    value_.fetch_add(by);
    series_.Increment(by);
  }
  double value() const { return value_.load(); }

 private:
  const std::shared_ptr<const void> series_user_;  // The series exists as long.
  prometheus::Gauge& series_;
  std::atomic<double> value_ = 0;
};

void Gauge::Set(double value) const {
  if (share_ != nullptr) return share_->Set(value);
  if (series_ != nullptr) series_->Set(value);
}
void Gauge::Add(double by) const {
  if (share_ != nullptr) return share_->Add(by);
  if (series_ != nullptr) series_->Increment(by);
}
double Gauge::value() const {
  if (share_ != nullptr) return share_->value();
  return series_ == nullptr ? 0 : series_->Value();
}
Gauge Gauge::MakeShare(std::shared_ptr<const void> series_user) const {
  Gauge gauge;
  if (series_ != nullptr) gauge.share_ = std::make_shared<Share>(*series_, std::move(series_user));
  return gauge;
}

void Histogram::Observe(absl::Duration duration) const {
  if (series_ != nullptr) series_->Observe(absl::ToDoubleSeconds(duration));
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  std::vector<Bucket> buckets;
  if (series_ == nullptr) return buckets;
  for (const auto& bucket : series_->Collect().histogram.bucket) {
    buckets.push_back({bucket.upper_bound, bucket.cumulative_count});
  }
  return buckets;
}

Metrics::Metrics(std::size_t tables_max)
    : registry_(std::make_shared<prometheus::Registry>()),
      table_labels_(std::make_unique<TableLabels>(*this, tables_max)) {}
Metrics::~Metrics() = default;

Counter Metrics::MakeCounter(const MetricInfo& info, LabelValues values) {
  const auto labels = LabelsOf(info, MetricKind::kCounter, values);
  return Counter(&FamilyOf(prometheus::BuildCounter(), info, *registry_).Add(labels));
}

Gauge Metrics::MakeGauge(const MetricInfo& info, LabelValues values) {
  const auto labels = LabelsOf(info, MetricKind::kGauge, values);
  return Gauge(&FamilyOf(prometheus::BuildGauge(), info, *registry_).Add(labels));
}

Histogram Metrics::MakeHistogram(const MetricInfo& info, LabelValues values) {
  const auto labels = LabelsOf(info, MetricKind::kHistogram, values);
  auto& family = FamilyOf(prometheus::BuildHistogram(), info, *registry_);
  return Histogram(&family.Add(labels, LatencyBuckets()));
}

void Metrics::Remove(const MetricInfo& info, LabelValues values) {
  const auto labels = LabelsOf(info, info.kind, values);
  const auto remove = [&](auto& family, const auto&... buckets) {
    family.Remove(&family.Add(labels, buckets...));
  };
  switch (info.kind) {
    case MetricKind::kCounter:
      return remove(FamilyOf(prometheus::BuildCounter(), info, *registry_));
    case MetricKind::kGauge:
      return remove(FamilyOf(prometheus::BuildGauge(), info, *registry_));
    case MetricKind::kHistogram:
      return remove(FamilyOf(prometheus::BuildHistogram(), info, *registry_), LatencyBuckets());
  }
}

std::map<std::string, double> Metrics::CounterValues(const MetricInfo& info) const {
  EMBLA_CHECK(info.kind == MetricKind::kCounter && info.label_count() == 1);
  std::map<std::string, double> values;
  auto& family = FamilyOf(prometheus::BuildCounter(), info, *registry_);
  for (const prometheus::MetricFamily& collected : family.Collect()) {
    for (const prometheus::ClientMetric& series : collected.metric) {
      values[series.label.front().value] = series.counter.value;
    }
  }
  return values;
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace embla
