#include "server/table/lookup_share.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/table/reused_vector.h"

namespace embla {
namespace {

// Rows that are gathered at once when they have to be moved to their positions after it: little
// enough to stay in the second-level cache.
constexpr std::size_t kScatterBytes = std::size_t{128} << 10;

// Of any id; meaningless unless the slice has it.
std::uint32_t SlotOf(const Slice& slice, RowId id) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(ToInt(id)) -
                                    static_cast<std::uint64_t>(slice.row_begin));
}

// What pooling nothing gives.
absl::Status ZeroRows(std::size_t count, ColumnRange columns, const kernels::Output& out) {
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  for (std::size_t row = 0; row < count; ++row) {
    std::memset(static_cast<std::byte*>(out.base) + row * out.stride_bytes, 0, row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

void RowSelection::Select(std::span<const RowId> ids, const OwnSlice& own) {
  store_ = own.store.get();
  WithPresence(own, [&](const auto& has) { SelectIf(ids, own.slice, has); });
}

template <typename Has>
void RowSelection::SelectIf(std::span<const RowId> ids, const Slice& slice, const Has& has) {
  ResizeReused(slots_, ids.size());
  ResizeReused(positions_, ids.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    slots_[found] = SlotOf(slice, ids[i]);
    positions_[found] = static_cast<std::uint32_t>(i);
    found += has(ToInt(ids[i])) ? 1 : 0;
  }
  all_ = found == ids.size();
  slots_.resize(found);
  positions_.resize(found);
}

absl::Status RowSelection::Gather(ColumnRange columns, const kernels::Output& out) {
  if (slots_.empty()) return absl::OkStatus();  // There may be no store.
  if (all_) return store_->Gather(slots_, columns, out);
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  const std::size_t rows_at_once = std::max<std::size_t>(1, kScatterBytes / row_bytes);
  rows_.resize(rows_at_once * row_bytes);
  const kernels::Output packed{rows_.data(), row_bytes, out.element};
  const std::span<const std::uint32_t> slots(slots_);
  for (std::size_t first = 0; first < slots.size(); first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, slots.size() - first);
    EMBLA_RETURN_IF_ERROR(store_->Gather(slots.subspan(first, count), columns, packed));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<std::byte*>(out.base) + positions_[first + i] * out.stride_bytes,
                  rows_.data() + i * row_bytes, row_bytes);
    }
  }
  return absl::OkStatus();
}

void BagSelection::Select(const LookupPart& part, const OwnSlice& own) {
  store_ = own.store.get();
  WithPresence(own, [&](const auto& has) { SelectIf(part, own.slice, has); });
}

template <typename Has>
void BagSelection::SelectIf(const LookupPart& part, const Slice& slice, const Has& has) {
  ResizeReused(slots_, part.ids.size());
  ResizeReused(weights_, part.weights.size());
  ResizeReused(lengths_, part.lengths.size());
  next_bag_ = next_slot_ = 0;
  std::size_t found = 0, id = 0;
  for (std::size_t bag = 0; bag < part.lengths.size(); ++bag) {
    const std::size_t bag_begin = found;
    for (const std::size_t bag_end = id + part.lengths[bag]; id < bag_end; ++id) {
      slots_[found] = SlotOf(slice, part.ids[id]);
      if (!part.weights.empty()) weights_[found] = part.weights[id];
      found += has(ToInt(part.ids[id])) ? 1 : 0;
    }
    lengths_[bag] = static_cast<std::uint32_t>(found - bag_begin);
  }
  slots_.resize(found);
}

absl::Status BagSelection::PoolNext(std::size_t count, ColumnRange columns,
                                    const kernels::Output& out) {
  EMBLA_CHECK(next_bag_ + count <= lengths_.size());
  kernels::Bags bags;
  bags.lengths = std::span<const std::uint32_t>(lengths_).subspan(next_bag_, count);
  std::size_t slots = 0;
  for (const std::uint32_t length : bags.lengths) slots += length;
  bags.slots = std::span<const std::uint32_t>(slots_).subspan(next_slot_, slots);
  if (!weights_.empty()) bags.weights = weights_.data() + next_slot_;
  next_bag_ += count;
  next_slot_ += slots;
  if (store_ == nullptr) return ZeroRows(count, columns, out);
  return store_->Pool(bags, columns, out);
}

absl::Status PoolNext(std::span<BagSelection> slices, std::size_t count, ColumnRange columns,
                      const kernels::Output& out, std::vector<float>& scratch) {
  EMBLA_RETURN_IF_ERROR(slices.front().PoolNext(count, columns, out));
  for (BagSelection& slice : slices.subspan(1)) {
    ResizeReused(scratch, count * columns.size());
    const kernels::Output more{scratch.data(), columns.size() * sizeof(float),
                               kernels::Element::kFloat32};
    EMBLA_RETURN_IF_ERROR(slice.PoolNext(count, columns, more));
    for (std::size_t row = 0; row < count; ++row) {
      auto* const sum =
          reinterpret_cast<float*>(static_cast<std::byte*>(out.base) + row * out.stride_bytes);
      for (std::uint32_t c = 0; c < columns.size(); ++c) {
        sum[c] += scratch[row * columns.size() + c];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace embla
