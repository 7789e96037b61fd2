// Rows in host memory: huge-page arenas (row_layout.h), Highway kernels, a pool of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/memory_arena.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "kernels/initialize.h"
#include "kernels/optimizer_step.h"
#include "server/optimizer/optimizer.h"
#include "server/storage/memory_budget.h"
#include "server/storage/prefetch_tuner.h"
#include "server/storage/row_store.h"
#include "server/storage/thread_pool.h"

namespace embla {

class HostRowStore final : public RowStore {
 public:
  // A store for the rows and columns of `slice`, of memory that the budget keeps where anything
  // will do. `budget` and `pool` are not owned and outlive the store.
  //
  // ResourceExhausted: over the budget, mmap failed, or the slice has more than 2^32 - 2 rows.
  static absl::StatusOr<std::unique_ptr<HostRowStore>> Create(const TableSpec& spec,
                                                              const Slice& slice,
                                                              MemoryBudget& budget,
                                                              ThreadPool& pool,
                                                              NewRows rows = NewRows::kInitial);
  ~HostRowStore() override;

  // Bytes that Create would take from the budget; of a ZCH table, also those of the ids' map.
  static std::size_t BytesNeeded(const TableSpec& spec, const Slice& slice);

  absl::Status Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                      const kernels::Output& out) const override;
  absl::Status Pool(const kernels::Bags& bags, ColumnRange columns,
                    const kernels::Output& out) const override;
  absl::Status Step(const RowStepBatch& batch) override;
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

  static constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
  std::size_t piece_bytes() const override { return kPieceBytes; }
  std::uint32_t slots() const override { return slots_; }
  ColumnRange columns() const override { return columns_; }
  DType dtype() const override { return dtype_; }
  std::size_t StateFloats(std::uint32_t columns) const override;
  std::size_t memory_bytes() const override;

 private:
  struct Arenas {
    MemoryGrant grant;
    MemoryArena weights;
    MemoryArena row_state;
    MemoryArena element_state;
  };
  HostRowStore(const TableSpec& spec, const Slice& slice, Arenas arenas, KeptMemory& kept,
               ThreadPool& pool);

  // The rows, seen from column `columns.begin` on.
  kernels::Rows View(ColumnRange columns) const;
  std::span<float> ElementState(std::uint32_t slot, std::size_t array) const;

  const std::uint32_t slots_;
  const ColumnRange columns_;
  const DType dtype_;
  const kernels::InitParameters init_;
  Optimizer optimizer_;
  Arenas arenas_;
  kernels::StepRows rows_;
  KeptMemory& kept_;  // Not owned; outlives this object.
  ThreadPool& pool_;  // Not owned; outlives this object.
  mutable PrefetchTuner gather_prefetch_;
  mutable PrefetchTuner pool_prefetch_;
  PrefetchTuner step_prefetch_;
};

}  // namespace embla
