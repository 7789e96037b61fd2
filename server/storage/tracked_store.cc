#include "server/storage/tracked_store.h"

namespace embla {

absl::Status TrackedStore::Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                                  const kernels::Output& out) const {
  return store_->Gather(slots, columns, out);
}

absl::Status TrackedStore::Pool(const kernels::Bags& bags, ColumnRange columns,
                                const kernels::Output& out) const {
  return store_->Pool(bags, columns, out);
}

absl::Status TrackedStore::PoolToWire(const kernels::Bags& bags,
                                      std::span<const std::uint32_t> divisors, ColumnRange columns,
                                      const kernels::Output& out) const {
  return store_->PoolToWire(bags, divisors, columns, out);
}

absl::Status TrackedStore::Step(const RowStepBatch& batch) {
  dirty_rows_.Mark(batch.slots);
  return store_->Step(batch);
}

absl::Status TrackedStore::ReserveUpdate(std::size_t positions, const kernels::Gradients& gradients,
                                         std::size_t gradient_rows) {
  return store_->ReserveUpdate(positions, gradients, gradient_rows);
}

absl::StatusOr<std::size_t> TrackedStore::Update(const GradientBatch& batch) {
  dirty_rows_.Mark(batch.slots);
  return store_->Update(batch);
}

absl::StatusOr<kernels::Divergence> TrackedStore::FindMeans(const RowCopies& rows) {
  return store_->FindMeans(rows);
}

absl::Status TrackedStore::TakeMeans(const RowCopies& rows) {
  dirty_rows_.MarkRun(rows.first, rows.count);
  return store_->TakeMeans(rows);
}

absl::Status TrackedStore::SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) {
  return store_->SetOptimizer(optimizer, rounding);
}

absl::Status TrackedStore::ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                    const RowImages& images) const {
  return store_->ReadRows(slots, columns, images);
}

absl::Status TrackedStore::WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                     const ConstRowImages& images) {
  dirty_rows_.Mark(slots);
  return store_->WriteRows(slots, columns, images);
}

absl::Status TrackedStore::ResetRows(std::uint32_t first, std::uint32_t count) {
  dirty_rows_.MarkRun(first, count);
  return store_->ResetRows(first, count);
}

absl::Status TrackedStore::ResetRowsTo(std::span<const std::uint32_t> slots,
                                       std::span<const RowId> ids) {
  dirty_rows_.Mark(slots);
  return store_->ResetRowsTo(slots, ids);
}

absl::Status TrackedStore::GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                                         const kernels::Output& out) const {
  return store_->GatherInitial(ids, columns, out);
}

}  // namespace embla
