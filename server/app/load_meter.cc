#include "server/app/load_meter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/metrics/names.h"

namespace embla {
namespace {

constexpr std::string_view kMethods[] = {"Lookup", "Update"};

// The counter of a table that has left and come back begins at 0 again.
double RiseOf(const std::map<std::string, double>& before, const std::string& table, double now) {
  const auto found = before.find(table);
  return found == before.end() || found->second > now ? now : now - found->second;
}

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

LoadMeter::LoadMeter(Metrics& metrics, std::size_t devices, absl::Time now)
    : metrics_(metrics), looked_(now) {
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
  (void)LookAtTables(1);
}

std::vector<TableLoad> LoadMeter::LookAtTables(double seconds) {
  const auto rates = [&](const MetricInfo& counter, ByTable& before) {
    ByTable now = metrics_.CounterValues(counter);
    ByTable rates;
    for (const auto& [table, value] : now) rates[table] = RiseOf(before, table, value) / seconds;
    before = std::move(now);
    return rates;
  };
  ByTable looked_up = rates(MetricNamed("embla_rows_looked_up_total"), looked_up_);
  ByTable updated = rates(MetricNamed("embla_rows_updated_total"), updated_);
  std::vector<TableLoad> tables;
  for (const auto& [table, rate] : looked_up) {
    const TableLoad load{table, rate, updated[table]};
    if (load.rows() > 0) tables.push_back(load);
  }
  std::ranges::stable_sort(tables, std::greater(), &TableLoad::rows);
  tables.resize(std::min(tables.size(), kTablesMax));
  return tables;
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
  load_.tables = LookAtTables(seconds);
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
