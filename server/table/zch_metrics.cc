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

ZchMetrics::ZchMetrics(Metrics* metrics, std::string_view table, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  hits_ = metrics->MakeCounter(metric::kZchHits, {table, label});
  inserts_ = metrics->MakeCounter(metric::kZchInserts, {table, label});
  unseen_ = metrics->MakeCounter(metric::kZchUnseen, {table, label});
  not_admitted_ = metrics->MakeCounter(metric::kZchRejections, {table, "not_admitted"});
  full_ = metrics->MakeCounter(metric::kZchRejections, {table, "full"});
  collisions_avoided_ = metrics->MakeCounter(metric::kZchCollisionsAvoided, {table, label});
  evicted_age_ = metrics->MakeCounter(metric::kZchEvictedAge, {table, label});
  residents_ = metrics->MakeGauge(metric::kZchResidents, {table, label});
  for (std::size_t reason = 1; reason < zch::kEvictionReasons; ++reason) {
    evictions_[reason] = metrics->MakeCounter(metric::kZchEvictions,
                                              {table, zch::NameOf(zch::EvictionReason(reason))});
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
