#include "server/coordinator/freeze_batches.h"

#include <algorithm>

namespace embla {

std::int64_t FreezeBatches::LeftBytes(std::int64_t bytes) const {
  return std::min(bytes, options_.unit_bytes_max);
}

std::vector<UnitId> FreezeBatches::Next(std::span<const Waiting> waiting, const Frozen& frozen,
                                        bool others_come, absl::Time now) {
  std::vector<UnitId> batch;
  if (frozen.units > 0 && now - began_ < options_.linger) return batch;
  std::int64_t bytes = frozen.bytes;
  absl::Time oldest = absl::InfiniteFuture();
  for (const Waiting& next : waiting) {
    oldest = std::min(oldest, next.since);
    const bool is_first = batch.empty() && frozen.units == 0;  // However large it is.
    const bool fits = frozen.units + batch.size() < options_.units_max &&
                      bytes + LeftBytes(next.bytes) <= options_.bytes_max;
    if (!fits && !is_first) continue;
    bytes += LeftBytes(next.bytes);
    batch.push_back(next.unit);
  }
  const bool is_full = batch.size() < waiting.size() || bytes >= options_.bytes_max ||
                       frozen.units + batch.size() >= options_.units_max;
  if (!is_full && others_come && now - oldest < options_.linger) return {};
  if (!batch.empty()) began_ = now;
  return batch;
}

}  // namespace embla
