#include "server/table/zch_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/metrics/names.h"

namespace embla {
namespace {

void Add(const Counter& counter, std::uint64_t before, std::uint64_t now) {
  if (now > before) counter.Add(static_cast<double>(now - before));
}

}  // namespace

ZchMetrics::ZchMetrics(Metrics* metrics, std::string_view table, std::uint32_t device)
    : series_(metrics, table) {
  const std::string label = absl::StrCat(device);
  hits_ = series_.MakeCounter(MetricNamed("embla_zch_hits_total"), label);
  inserts_ = series_.MakeCounter(MetricNamed("embla_zch_inserts_total"), label);
  unseen_ = series_.MakeCounter(MetricNamed("embla_zch_unseen_total"), label);
  not_admitted_ = series_.MakeCounter(MetricNamed("embla_zch_rejections_total"), "not_admitted");
  full_ = series_.MakeCounter(MetricNamed("embla_zch_rejections_total"), "full");
  collisions_avoided_ =
      series_.MakeCounter(MetricNamed("embla_zch_collisions_avoided_total"), label);
  evicted_age_ = series_.MakeCounter(MetricNamed("embla_zch_evicted_age_steps_total"), label);
  residents_ = series_.MakeGauge(MetricNamed("embla_zch_residents"), label);
  for (std::size_t reason = 1; reason < zch::kEvictionReasons; ++reason) {
    evictions_[reason] = series_.MakeCounter(MetricNamed("embla_zch_evictions_total"),
                                             zch::NameOf(zch::EvictionReason(reason)));
  }
}

void ZchMetrics::Count(const zch::Statistics& before, const zch::Statistics& now) const {
  Add(hits_, before.hits + before.read_hits, now.hits + now.read_hits);
  Add(inserts_, before.inserts, now.inserts);
  Add(unseen_, before.read_missing, now.read_missing);
  Add(not_admitted_, before.not_admitted, now.not_admitted);
  Add(full_, before.full, now.full);
  Add(collisions_avoided_, before.collisions_avoided, now.collisions_avoided);
  Add(evicted_age_, before.evicted_age_sum, now.evicted_age_sum);
  double residents = static_cast<double>(now.inserts - before.inserts);
  for (std::size_t reason = 1; reason < zch::kEvictionReasons; ++reason) {
    Add(evictions_[reason], before.evictions[reason], now.evictions[reason]);
    residents -= static_cast<double>(now.evictions[reason] - before.evictions[reason]);
  }
  if (residents != 0) residents_.Add(residents);
}

}  // namespace embla
