#include "server/storage/tiered_row_store.h"

#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "kernels/row_kernels.h"
#include "server/storage/device_row_store.h"
#include "server/storage/host_row_store.h"

namespace embla {
namespace {

kernels::Output From(const kernels::Output& out, std::size_t row) {
  return {static_cast<std::byte*>(out.base) + row * out.stride_bytes, out.stride_bytes,
          out.element};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TieredRowStore>> TieredRowStore::Create(
    const TableSpec& spec, const Slice& slice, const Tiers& tiers, NewRows rows,
    std::unique_ptr<CacheObserver> observer) {
  EMBLA_CHECK(tiers.cache_lines >= 1 && tiers.cache_lines <= slice.rows());
  Slice lines = slice;
  lines.row_begin = 0;
  lines.row_end = tiers.cache_lines;
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<RowStore> host,
                         HostRowStore::Create(spec, slice, tiers.host, tiers.pool, rows));
  EMBLA_ASSIGN_OR_RETURN(
      std::unique_ptr<RowStore> gpu,
      DeviceRowStore::Create(spec, lines, tiers.gpu, tiers.lanes, NewRows::kUnset));
  return std::unique_ptr<TieredRowStore>(new TieredRowStore(std::move(host), std::move(gpu), tiers,
                                                            spec.rounding, std::move(observer)));
}

bool TieredRowStore::StepsOnHost() const {
  return rounding_ == Rounding::kStochastic && dtype() != DType::kFloat32;
}

std::size_t TieredRowStore::PieceEnd(std::span<const std::uint32_t> slots,
                                     std::size_t begin) const {
  if (slots.size() - begin <= cache_.lines()) return slots.size();
  absl::flat_hash_set<std::uint32_t> seen;
  for (std::size_t i = begin; i < slots.size(); ++i) {
    if (slots[i] == kernels::kNoSlot) continue;
    seen.insert(slots[i]);
    if (seen.size() > cache_.lines()) return i;
  }
  return slots.size();
}

absl::Status TieredRowStore::Copy(const RowStore& from, std::span<const std::uint32_t> from_slots,
                                  RowStore& to, std::span<const std::uint32_t> to_slots) const {
  if (from_slots.empty()) return absl::OkStatus();
  weights_.resize(from_slots.size() * RowBytes(dtype(), columns().size()));
  state_.resize(from_slots.size() * StateFloats(columns().size()));
  EMBLA_RETURN_IF_ERROR(from.ReadRows(from_slots, columns(), {weights_, state_}));
  return to.WriteRows(to_slots, columns(), {weights_, state_});
}

absl::Status TieredRowStore::Save(const RowCache::Pairs& changed) const {
  const absl::Status status = Copy(*gpu_, changed.lines, *host_, changed.slots);
  return status.ok() ? status : lanes_.device().Stop(status);
}

absl::Status TieredRowStore::Fetch(std::span<const std::uint32_t> slots, bool changes) const {
  EMBLA_RETURN_IF_ERROR(lanes_.device().health());
  cache_.Place(slots, changes, placement_);
  if (observer_ != nullptr) observer_->OnBatch(cache_.statistics());
  const RowCache::Pairs& fills = placement_.fills;
  absl::Status status = Save(placement_.write_backs);
  if (status.ok()) status = Copy(*host_, fills.slots, *gpu_, fills.lines);
  // Rows that did not come have no lines.
  if (!status.ok()) cache_.Drop(fills.slots);
  return status;
}

absl::Status TieredRowStore::WriteBack(std::span<const std::uint32_t> slots) const {
  EMBLA_RETURN_IF_ERROR(lanes_.device().health());
  RowCache::Pairs changed;
  cache_.TakeChanged(slots, changed);
  return Save(changed);
}

absl::Status TieredRowStore::Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                                    const kernels::Output& out) const {
  for (std::size_t begin = 0; begin < slots.size();) {
    const std::size_t end = PieceEnd(slots, begin);
    EMBLA_RETURN_IF_ERROR(Fetch(slots.subspan(begin, end - begin), /*changes=*/false));
    EMBLA_RETURN_IF_ERROR(gpu_->Gather(placement_.lines, columns, From(out, begin)));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status TieredRowStore::PoolToWire(const kernels::Bags& bags,
                                        std::span<const std::uint32_t> divisors,
                                        ColumnRange columns, const kernels::Output& out) const {
  std::size_t first_slot = 0;
  for (std::size_t begin = 0; begin < bags.lengths.size();) {
    // Takes as many bags as fit.
    const std::size_t fitting = PieceEnd(bags.slots, first_slot);
    std::size_t end = begin, end_slot = first_slot;
    while (end < bags.lengths.size() && end_slot + bags.lengths[end] <= fitting) {
      end_slot += bags.lengths[end++];
    }
    const bool fits = end > begin;
    if (!fits) end_slot += bags.lengths[end++];
    kernels::Bags piece;
    piece.slots = bags.slots.subspan(first_slot, end_slot - first_slot);
    piece.lengths = bags.lengths.subspan(begin, end - begin);
    if (bags.weights != nullptr) piece.weights = bags.weights + first_slot;
    const auto piece_divisors = divisors.empty() ? divisors : divisors.subspan(begin, end - begin);
    if (fits) {
      EMBLA_RETURN_IF_ERROR(Fetch(piece.slots, /*changes=*/false));
      piece.slots = placement_.lines;
      EMBLA_RETURN_IF_ERROR(gpu_->PoolToWire(piece, piece_divisors, columns, From(out, begin)));
    } else {
      EMBLA_RETURN_IF_ERROR(PoolOnHost(piece, piece_divisors, columns, From(out, begin)));
    }
    begin = end;
    first_slot = end_slot;
  }
  return absl::OkStatus();
}

absl::Status TieredRowStore::PoolOnHost(const kernels::Bags& bag,
                                        std::span<const std::uint32_t> divisors,
                                        ColumnRange columns, const kernels::Output& out) const {
  EMBLA_RETURN_IF_ERROR(WriteBack(bag.slots));
  std::vector<float> sum(columns.size());
  const std::size_t sum_bytes = sum.size() * sizeof(float);
  EMBLA_RETURN_IF_ERROR(
      host_->Pool(bag, columns, {sum.data(), sum_bytes, kernels::Element::kFloat32}));
  if (!divisors.empty()) kernels::DivideRows({sum.data(), sum_bytes, columns.size()}, divisors);
  kernels::Convert({sum.data(), sum_bytes}, out, 1, columns.size());
  return absl::OkStatus();
}

absl::Status TieredRowStore::Step(const RowStepBatch& batch) {
  if (StepsOnHost()) {
    EMBLA_RETURN_IF_ERROR(WriteBack(batch.slots));
    cache_.Drop(batch.slots);
    return host_->Step(batch);
  }
  for (std::size_t begin = 0; begin < batch.slots.size();) {
    const std::size_t end = PieceEnd(batch.slots, begin);
    EMBLA_RETURN_IF_ERROR(Fetch(batch.slots.subspan(begin, end - begin), /*changes=*/true));
    RowStepBatch piece = batch.Piece(begin, end);
    piece.slots = placement_.lines;  // Unique; a GPU needs no order.
    EMBLA_RETURN_IF_ERROR(gpu_->Step(piece));
    begin = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> TieredRowStore::Update(const GradientBatch& batch) {
  EMBLA_RETURN_IF_ERROR(Fetch(batch.slots, /*changes=*/true));
  GradientBatch on_lines = batch;
  on_lines.slots = placement_.lines;
  return gpu_->Update(on_lines);
}

absl::Status TieredRowStore::SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) {
  EMBLA_RETURN_IF_ERROR(host_->SetOptimizer(optimizer, rounding));
  rounding_ = rounding;
  return gpu_->SetOptimizer(optimizer, rounding);
}

absl::Status TieredRowStore::ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                      const RowImages& images) const {
  EMBLA_RETURN_IF_ERROR(WriteBack(slots));
  return host_->ReadRows(slots, columns, images);
}

absl::Status TieredRowStore::WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                       const ConstRowImages& images) {
  // The other columns may have changed on the GPU.
  EMBLA_RETURN_IF_ERROR(WriteBack(slots));
  cache_.Drop(slots);
  return host_->WriteRows(slots, columns, images);
}

absl::Status TieredRowStore::ResetRows(std::uint32_t first, std::uint32_t count) {
  EMBLA_RETURN_IF_ERROR(lanes_.device().health());
  std::vector<std::uint32_t> slots(count);
  std::iota(slots.begin(), slots.end(), first);
  cache_.Drop(slots);
  return host_->ResetRows(first, count);
}

absl::Status TieredRowStore::ResetRowsTo(std::span<const std::uint32_t> slots,
                                         std::span<const RowId> ids) {
  EMBLA_RETURN_IF_ERROR(lanes_.device().health());
  cache_.Drop(slots);
  return host_->ResetRowsTo(slots, ids);
}

}  // namespace embla
