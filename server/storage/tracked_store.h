// A RowStore that keeps which rows of another have changed (dirty_rows.h).
//
// A verb's slots are dirty before it runs, as a verb that fails may have changed rows. So every row
// that has changed is dirty, and a dirty row need not have changed.
//
// Thread safety: none, as for the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/storage/dirty_rows.h"
#include "server/storage/row_store.h"

namespace embla {

class TrackedStore final : public RowStore {
 public:
  // Requires: `store` is not null, and is written through this object only.
  explicit TrackedStore(std::unique_ptr<RowStore> store)
      : store_(std::move(store)), dirty_rows_(store_->slots()) {}

  DirtyRows* dirty_rows() override { return &dirty_rows_; }

  absl::Status Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                      const kernels::Output& out) const override;
  absl::Status Pool(const kernels::Bags& bags, ColumnRange columns,
                    const kernels::Output& out) const override;
  bool PoolsToWire(std::size_t bags) const override { return store_->PoolsToWire(bags); }
  absl::Status PoolToWire(const kernels::Bags& bags, std::span<const std::uint32_t> divisors,
                          ColumnRange columns, const kernels::Output& out) const override;
  absl::Status Step(const RowStepBatch& batch) override;
  bool SumsGradients(std::size_t positions) const override {
    return store_->SumsGradients(positions);
  }
  absl::Status ReserveUpdate(std::size_t positions, const kernels::Gradients& gradients,
                             std::size_t gradient_rows) override;
  absl::StatusOr<std::size_t> Update(const GradientBatch& batch) override;
  const kernels::StepRows* ShowRows(std::size_t count) override { return store_->ShowRows(count); }
  absl::StatusOr<kernels::Divergence> FindMeans(const RowCopies& rows) override;
  absl::Status TakeMeans(const RowCopies& rows) override;
  absl::Status SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) override;
  absl::Status ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                        const RowImages& images) const override;
  absl::Status WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                         const ConstRowImages& images) override;
  absl::Status ResetRows(std::uint32_t first, std::uint32_t count) override;
  absl::Status ResetRowsTo(std::span<const std::uint32_t> slots,
                           std::span<const RowId> ids) override;
  absl::Status GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                             const kernels::Output& out) const override;

  std::size_t piece_bytes() const override { return store_->piece_bytes(); }
  std::uint32_t slots() const override { return store_->slots(); }
  ColumnRange columns() const override { return store_->columns(); }
  DType dtype() const override { return store_->dtype(); }
  std::size_t StateFloats(std::uint32_t columns) const override {
    return store_->StateFloats(columns);
  }
  std::size_t memory_bytes() const override {
    return store_->memory_bytes() + dirty_rows_.memory_bytes();
  }

 private:
  const std::unique_ptr<RowStore> store_;
  DirtyRows dirty_rows_;
};

}  // namespace embla
