#include "server/zch/host_id_map.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::zch {

absl::StatusOr<std::unique_ptr<IdMap>> HostIdMap::Create(const SlotMapOptions& options) {
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<SlotMap> map, SlotMap::Create(options));
  return std::unique_ptr<IdMap>(new HostIdMap(std::move(map)));
}

absl::Status HostIdMap::Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                             std::span<Outcome> outcomes) const {
  map_->Find(ids, slots, outcomes);
  return absl::OkStatus();
}

absl::Status HostIdMap::Locate(std::span<const RowId> ids, std::span<ZchSlot> slots) const {
  EMBLA_CHECK(slots.size() == ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) slots[i] = map_->Explain(ids[i]).slot;
  return absl::OkStatus();
}

absl::Status HostIdMap::Apply(const Batch& batch, Answer& answer, ParallelFor loop) {
  map_->Apply(batch, answer, loop);
  return absl::OkStatus();
}

absl::Status HostIdMap::Remove(std::span<const RowId> ids, std::uint64_t step,
                               std::vector<Eviction>& evictions) {
  map_->Remove(ids, step, evictions);
  return absl::OkStatus();
}

absl::Status HostIdMap::EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                                     BucketRange range) {
  map_->EvictExpired(clock, evictions, range);
  return absl::OkStatus();
}

absl::Status HostIdMap::EvictIdle(std::uint64_t before_step, std::uint64_t step,
                                  std::vector<Eviction>& evictions, BucketRange range) {
  map_->EvictIdle(before_step, step, evictions, range);
  return absl::OkStatus();
}

absl::Status HostIdMap::HalveCounts() {
  map_->HalveCounts();
  return absl::OkStatus();
}

absl::Status HostIdMap::IdsAt(ZchSlot begin, std::span<std::optional<RowId>> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = map_->IdAt(ZchSlot{ToInt(begin) + static_cast<std::int64_t>(i)});
  }
  return absl::OkStatus();
}

}  // namespace embla::zch
