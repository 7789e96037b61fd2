// A table larger than its GPU: rows in host memory, and lines for those in use
// on the GPU.
//
// A batch's rows come to the GPU before its kernels run, and go back when
// others need their lines; a row that has changed is written back then, or when
// somebody reads rows as they move. Requests therefore fetch what they need
// ahead of their own kernels, a piece at a time. All bits are those of one
// store.
//
// Steps with stochastic rounding are keyed by a row's number, which a line does
// not have: they run on the host, and their rows lose their lines. So does a
// bag that has more rows than there are lines.
//
// Rows that changed on the GPU are nowhere else: when it stops, or one cannot be
// read back, everything is answered Unavailable, as the host's row may be old.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "server/storage/device_lanes.h"
#include "server/storage/memory_budget.h"
#include "server/storage/row_cache.h"
#include "server/storage/row_store.h"
#include "server/storage/thread_pool.h"

namespace embla {

// Hears how the cache has done so far, after every batch, on the device's thread.
class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void OnBatch(const RowCache::Statistics& so_far) = 0;
};

class TieredRowStore final : public RowStore {
 public:
  struct Tiers {
    MemoryBudget& host;
    MemoryBudget& gpu;
    ThreadPool& pool;
    DeviceLanes& lanes;
    std::uint32_t cache_lines = 0;  // Rows on the GPU, at least 1; of at most the slice's.
    RowCache::Policy policy = RowCache::Policy::kLru;
  };
  // Makes a store on `tiers`; what they refer to is not owned and outlives the store; `observer`
  // may be null. Errors: those of HostRowStore and of DeviceRowStore.
  static absl::StatusOr<std::unique_ptr<TieredRowStore>> Create(
      const TableSpec& spec, const Slice& slice, const Tiers& tiers,
      NewRows rows = NewRows::kInitial, std::unique_ptr<CacheObserver> observer = nullptr);

  const RowCache::Statistics& cache_statistics() const { return cache_.statistics(); }

  absl::Status Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                      const kernels::Output& out) const override;
  absl::Status Pool(const kernels::Bags& bags, ColumnRange columns,
                    const kernels::Output& out) const override {
    return PoolToWire(bags, {}, columns, out);
  }
  bool PoolsToWire(std::size_t bags) const override { return gpu_->PoolsToWire(bags); }
  absl::Status PoolToWire(const kernels::Bags& bags, std::span<const std::uint32_t> divisors,
                          ColumnRange columns, const kernels::Output& out) const override;
  absl::Status Step(const RowStepBatch& batch) override;
  // Not of more positions than lines, nor where the host steps.
  bool SumsGradients(std::size_t positions) const override {
    return !StepsOnHost() && positions <= cache_.lines() && gpu_->SumsGradients(positions);
  }
  absl::Status ReserveUpdate(std::size_t positions, const kernels::Gradients& gradients,
                             std::size_t gradient_rows) override {
    return gpu_->ReserveUpdate(positions, gradients, gradient_rows);
  }
  absl::StatusOr<std::size_t> Update(const GradientBatch& batch) override;
  absl::Status SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) override;
  absl::Status ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                        const RowImages& images) const override;
  absl::Status WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                         const ConstRowImages& images) override;
  absl::Status ResetRows(std::uint32_t first, std::uint32_t count) override;
  absl::Status ResetRowsTo(std::span<const std::uint32_t> slots,
                           std::span<const RowId> ids) override;
  absl::Status GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                             const kernels::Output& out) const override {
    return host_->GatherInitial(ids, columns, out);
  }

  std::size_t piece_bytes() const override { return gpu_->piece_bytes(); }
  std::uint32_t slots() const override { return host_->slots(); }
  ColumnRange columns() const override { return host_->columns(); }
  DType dtype() const override { return host_->dtype(); }
  std::size_t StateFloats(std::uint32_t columns) const override {
    return host_->StateFloats(columns);
  }
  std::size_t memory_bytes() const override { return host_->memory_bytes() + gpu_->memory_bytes(); }

 private:
  TieredRowStore(std::unique_ptr<RowStore> host, std::unique_ptr<RowStore> gpu, const Tiers& tiers,
                 Rounding rounding, std::unique_ptr<CacheObserver> observer)
      : host_(std::move(host)),
        gpu_(std::move(gpu)),
        lanes_(tiers.lanes),
        observer_(std::move(observer)),
        rounding_(rounding),
        cache_(tiers.cache_lines, tiers.policy) {}

  // Returns the end of the piece that begins at `begin` and has no more different slots than lines.
  std::size_t PieceEnd(std::span<const std::uint32_t> slots, std::size_t begin) const;
  // placement_.lines are the rows' places on the GPU when it returns.
  absl::Status Fetch(std::span<const std::uint32_t> slots, bool changes) const;
  // Makes the host's rows of `slots` the newest ones.
  absl::Status WriteBack(std::span<const std::uint32_t> slots) const;
  // Copies rows that have changed to the host. They are lost if that fails, and the device stops.
  absl::Status Save(const RowCache::Pairs& changed) const;
  // Rows between the two stores, whole, with their state.
  absl::Status Copy(const RowStore& from, std::span<const std::uint32_t> from_slots, RowStore& to,
                    std::span<const std::uint32_t> to_slots) const;
  // PoolToWire of one bag.
  absl::Status PoolOnHost(const kernels::Bags& bag, std::span<const std::uint32_t> divisors,
                          ColumnRange columns, const kernels::Output& out) const;
  bool StepsOnHost() const;

  const std::unique_ptr<RowStore> host_;
  const std::unique_ptr<RowStore> gpu_;  // Slot == line.
  DeviceLanes& lanes_;                   // Not owned; outlives this object.
  const std::unique_ptr<CacheObserver> observer_;
  Rounding rounding_;
  // Mutable, since reading may change where rows are, which is no part of the store's value.
  mutable RowCache cache_;
  mutable RowCache::Placement placement_;
  mutable std::vector<std::byte> weights_;
  mutable std::vector<float> state_;
};

}  // namespace embla
