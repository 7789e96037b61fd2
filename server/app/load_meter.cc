#include "server/app/load_meter.h"

#include <algorithm>
#include <cmath>

#include "core/metrics/names.h"

namespace embla {
namespace {

constexpr std::string_view kMethods[] = {"Lookup", "Update"};

}  // namespace

absl::Duration QuantileBetween(const std::vector<Histogram::Bucket>& before,
                               const std::vector<Histogram::Bucket>& after, double q) {
  if (after.empty() || before.size() != after.size()) return absl::ZeroDuration();
  const auto count_to = [&](std::size_t i) {
    return static_cast<double>(after[i].cumulative - before[i].cumulative);
  };
  const double total = count_to(after.size() - 1);
  if (total <= 0) return absl::ZeroDuration();
  std::size_t i = 0;
  while (i + 1 < after.size() && count_to(i) < q * total) ++i;
  const double low = i == 0 ? 0.0 : after[i - 1].seconds_max;
  if (std::isinf(after[i].seconds_max)) return absl::Seconds(low);
  const double below = i == 0 ? 0.0 : count_to(i - 1);
  const double within = (q * total - below) / (count_to(i) - below);
  return absl::Seconds(low + (after[i].seconds_max - low) * within);
}

LoadMeter::LoadMeter(Metrics& metrics, std::size_t devices, absl::Time now) : looked_(now) {
  for (const std::string_view name : kMethods) {
    Method& method = methods_.emplace_back();
    method.name = name;
    method.latency = metrics.MakeHistogram(MetricNamed("embla_request_latency_seconds"), {name});
    method.before = method.latency.buckets();
  }
  for (std::size_t d = 0; d < devices; ++d) {
    Device& device = devices_.emplace_back();
    device.busy_seconds =
        metrics.MakeCounter(MetricNamed("embla_device_busy_seconds_total"), {std::to_string(d)});
    device.before = device.busy_seconds.value();
  }
}

const NodeLoad& LoadMeter::Look(absl::Time now) {
  const absl::Duration window = now - looked_;
  if (window < kWindowMin) return load_;
  looked_ = now;
  load_ = {};
  const double seconds = absl::ToDoubleSeconds(window);
  for (Device& device : devices_) {
    const double busy = device.busy_seconds.value();
    load_.device_busy.push_back(std::clamp((busy - device.before) / seconds, 0.0, 1.0));
    device.before = busy;
  }
  for (Method& method : methods_) {
    std::vector<Histogram::Bucket> buckets = method.latency.buckets();
    const auto calls =
        static_cast<double>(buckets.back().cumulative - method.before.back().cumulative);
    load_.calls.push_back({.method = method.name,
                           .per_second = calls / seconds,
                           .p50 = QuantileBetween(method.before, buckets, 0.5),
                           .p99 = QuantileBetween(method.before, buckets, 0.99)});
    method.before = std::move(buckets);
  }
  return load_;
}

}  // namespace embla
