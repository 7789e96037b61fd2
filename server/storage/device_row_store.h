// Rows in the memory of a GPU (row_layout.h), and the kernels of that GPU on them.
//
// Callers give and take host memory, as of a HostRowStore: batches travel on the device's lanes.
// Every verb returns when its results are there. A device that has stopped answers Unavailable; a
// verb that changes rows and fails stops its device, since nobody knows then which rows it changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "kernels/initialize.h"
#include "kernels/optimizer_step.h"
#include "server/gpu/device.h"
#include "server/optimizer/optimizer.h"
#include "server/storage/device_lanes.h"
#include "server/storage/memory_budget.h"
#include "server/storage/row_store.h"

namespace embla {

namespace kernels::cuda {
struct CopyDistance;
struct DeviceGradients;
}  // namespace kernels::cuda

class DeviceRowStore final : public RowStore {
 public:
  // A store for the rows and columns of `slice`. `budget` and `lanes` are not owned and outlive the
  // store. May be called on any thread: it does not use the lanes.
  //
  // ResourceExhausted: over the budget, no memory left on the GPU, or the slice has more than
  // 2^32 - 2 rows. Errors of gpu::Device.
  static absl::StatusOr<std::unique_ptr<DeviceRowStore>> Create(const TableSpec& spec,
                                                                const Slice& slice,
                                                                MemoryBudget& budget,
                                                                DeviceLanes& lanes,
                                                                NewRows rows = NewRows::kInitial);

  absl::Status Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                      const kernels::Output& out) const override;
  absl::Status Pool(const kernels::Bags& bags, ColumnRange columns,
                    const kernels::Output& out) const override;
  // For fewer sums, 64 KiB where a piece has 4 MiB, two launches would cost more than the host
  // does.
  bool PoolsToWire(std::size_t bags) const override {
    return bags * columns_.size() * sizeof(float) >= lanes_.piece_bytes() / 64;
  }
  absl::Status PoolToWire(const kernels::Bags& bags, std::span<const std::uint32_t> divisors,
                          ColumnRange columns, const kernels::Output& out) const override;
  absl::Status Step(const RowStepBatch& batch) override;
  // For fewer positions the launches would cost more than the host's sums: 1,024 of them where a
  // piece has 4 MiB.
  bool SumsGradients(std::size_t positions) const override {
    return positions * kPieceBytesPerPosition >= lanes_.piece_bytes();
  }
  absl::Status ReserveUpdate(std::size_t positions, const kernels::Gradients& gradients,
                             std::size_t gradient_rows) override;
  absl::StatusOr<std::size_t> Update(const GradientBatch& batch) override;
  const kernels::StepRows* ShowRows(std::size_t count) override;
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

  // Both lanes, twice: one's piece is on its way while the other's is being filled.
  std::size_t piece_bytes() const override { return 4 * lanes_.piece_bytes(); }
  std::uint32_t slots() const override { return slots_; }
  ColumnRange columns() const override { return columns_; }
  DType dtype() const override { return dtype_; }
  std::size_t StateFloats(std::uint32_t columns) const override;
  std::size_t memory_bytes() const override { return arenas_.grant.bytes(); }

 private:
  struct Arenas {
    MemoryGrant grant;
    gpu::DeviceMemory weights;
    gpu::DeviceMemory row_state;
    gpu::DeviceMemory element_state;
  };
  static constexpr std::size_t kPieceBytesPerPosition = 4096;
  // How the gradients of an Update come to the GPU.
  enum class Way : std::uint8_t {
    kCopied,     // All of them, from pinned memory of the caller to the scratch memory.
    kInPlace,    // The kernels read those they need in pinned memory of the caller, over the link.
    kWithSlots,  // Packed by the host, beside the slots.
    kInPieces,   // Packed by the host, to the scratch memory, before the slots.
  };
  struct UpdatePlan {
    Way way = Way::kWithSlots;
    std::size_t rows = 0;  // Gradients that travel.
    std::size_t row_bytes = 0;
    bool by_position = false;         // Packed, a row for each position: fewer than there are.
    std::size_t in_bytes = 0;         // Cargo of the last trip.
    std::size_t workspace_begin = 0;  // In the scratch memory, behind the gradients.
    std::size_t workspace_bytes = 0;
    std::size_t expanded_begin = 0;  // Behind that, room for what bags are expanded to.
    std::size_t scratch_bytes = 0;   // All of it.
  };
  absl::StatusOr<UpdatePlan> PlanOf(std::size_t positions, const kernels::Gradients& gradients,
                                    std::size_t gradient_rows) const;
  // One array of the state as rows: of some columns, and where they are in a row's image.
  struct StateColumns {
    kernels::MutableRows rows;
    std::size_t first_float = 0;
  };

  DeviceRowStore(const TableSpec& spec, const Slice& slice, Arenas arenas, DeviceLanes& lanes);

  // The rows, seen from column `columns.begin` on.
  kernels::MutableRows View(ColumnRange columns) const;
  // Calls use(StateColumns) for each array of the state.
  template <typename Use>
  absl::Status ForEachState(ColumnRange columns, const Use& use) const;
  absl::Status ResetAll() const;
  absl::Status Reset(gpu::Stream& stream, std::uint32_t first, std::uint32_t count) const;
  absl::Status QueuePool(Lane& lane, const kernels::Bags& bags,
                         std::span<const std::uint32_t> divisors, const kernels::Rows& view,
                         kernels::Element element) const;
  absl::Status SendGradients(const GradientBatch& batch, const UpdatePlan& plan) const;
  static void PackGradients(const GradientBatch& batch, const UpdatePlan& plan, std::size_t begin,
                            std::size_t end, std::byte* to);
  absl::Status QueueUpdate(Lane& lane, const GradientBatch& batch, const UpdatePlan& plan) const;
  // Bags as they travel, and what of the gradients they are expanded to on the GPU.
  struct SentBags {
    const std::uint32_t* offsets = nullptr;
    const float* factors = nullptr;
  };
  static SentBags PutBags(Lane& lane, const GradientBatch& batch);
  absl::Status QueueExpansion(Lane& lane, const GradientBatch& batch, const UpdatePlan& plan,
                              const SentBags& bags,
                              kernels::cuda::DeviceGradients& gradients) const;
  // The gradients where the kernels of an update find them; queues their copy.
  absl::StatusOr<kernels::Input> QueueGradients(Lane& lane, const GradientBatch& batch,
                                                const UpdatePlan& plan) const;
  // Rows in the scratch memory, for the means of `count`.
  kernels::StepRows Means(std::size_t count) const;
  // The mean of `copies` to `to`, `count` rows, each from its slot 0 on.
  absl::Status QueueMeans(gpu::Stream& stream, std::span<const kernels::StepRows> copies,
                          std::size_t own, std::size_t count, const kernels::StepRows& to,
                          kernels::cuda::CopyDistance* distances) const;
  absl::Status QueueStep(Lane& lane, const RowStepBatch& batch) const;
  absl::Status QueueRead(Lane& lane, std::span<const std::uint32_t> slots,
                         ColumnRange columns) const;
  absl::Status QueueWrite(Lane& lane, std::span<const std::uint32_t> slots, ColumnRange columns,
                          const ConstRowImages& images) const;
  absl::Status QueueReset(Lane& lane, std::span<const std::uint32_t> slots,
                          std::span<const RowId> ids, std::span<const float> state) const;
  // For verbs that change rows: stops the store on an error.
  absl::Status StopOnError(const absl::Status& status) const;

  const std::uint32_t slots_;
  const ColumnRange columns_;
  const DType dtype_;
  const kernels::InitParameters init_;
  Optimizer optimizer_;
  Arenas arenas_;
  const kernels::StepRows rows_;
  DeviceLanes& lanes_;               // Not owned; outlives this object, like
  const gpu::KernelTable& kernels_;  // this.
};

}  // namespace embla
