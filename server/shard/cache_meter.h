// Counts what the cache of a table's rows on a GPU does.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/metrics/gpu_metrics.h"
#include "server/storage/tiered_row_store.h"

namespace embla {

class CacheMeter final : public CacheObserver {
 public:
  // `metrics` may be null.
  CacheMeter(Metrics* metrics, std::string_view table, std::uint32_t device)
      : metrics_(metrics, table, device) {}

  void OnBatch(const RowCache::Statistics& so_far) override {
    const auto count = [](const Counter& counter, std::uint64_t now, std::uint64_t before) {
      if (now != before) counter.Add(static_cast<double>(now - before));
    };
    count(metrics_.hits, so_far.hits, counted_.hits);
    count(metrics_.misses, so_far.misses, counted_.misses);
    count(metrics_.evictions, so_far.evictions, counted_.evictions);
    count(metrics_.write_backs, so_far.write_backs, counted_.write_backs);
    counted_ = so_far;
  }

 private:
  const RowCacheMetrics metrics_;
  RowCache::Statistics counted_;
};

}  // namespace embla
