// A slot map as an IdMap.
#pragma once

#include <memory>

#include "server/zch/id_map.h"
#include "server/zch/slot_map.h"

namespace embla::zch {

class HostIdMap final : public IdMap {
 public:
  // Holds no bucket. Errors: those of SlotMap::Create.
  static absl::StatusOr<std::unique_ptr<IdMap>> Create(const SlotMapOptions& options);

  absl::Status AddBucket(std::uint32_t bucket) override { return map_->AddBucket(bucket); }
  absl::Status RemoveBucket(std::uint32_t bucket) override { return map_->RemoveBucket(bucket); }
  bool Holds(std::uint32_t bucket) const override { return map_->Holds(bucket); }

  absl::Status Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                    std::span<Outcome> outcomes) const override;
  absl::Status Locate(std::span<const RowId> ids, std::span<ZchSlot> slots) const override;
  absl::Status Apply(const Batch& batch, Answer& answer, ParallelFor loop) override;

  absl::Status Remove(std::span<const RowId> ids, std::uint64_t step,
                      std::vector<Eviction>& evictions) override;
  absl::Status EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                            BucketRange range) override;
  absl::Status EvictIdle(std::uint64_t before_step, std::uint64_t step,
                         std::vector<Eviction>& evictions, BucketRange range) override;
  absl::Status HalveCounts() override;

  absl::StatusOr<Buffer> ExportBucket(std::uint32_t bucket) const override {
    return map_->ExportBucket(bucket);
  }
  absl::Status ImportBucket(std::span<const std::byte> block) override {
    return map_->ImportBucket(block);
  }

  absl::StatusOr<Explanation> Explain(RowId id) const override { return map_->Explain(id); }
  absl::Status IdsAt(ZchSlot begin, std::span<std::optional<RowId>> ids) const override;
  absl::StatusOr<Survey> TakeSurvey(std::uint64_t step, BucketRange range) const override {
    return map_->TakeSurvey(step, range);
  }

  Statistics statistics() const override { return map_->statistics(); }
  std::uint64_t residents(std::uint32_t bucket) const override { return map_->residents(bucket); }
  const SlotMapOptions& options() const override { return map_->options(); }
  std::size_t memory_bytes() const override { return 0; }

 private:
  explicit HostIdMap(std::unique_ptr<SlotMap> map) : map_(std::move(map)) {}

  const std::unique_ptr<SlotMap> map_;
};

}  // namespace embla::zch
