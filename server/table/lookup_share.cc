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

std::uint64_t OffsetIn(const Slice& slice, RowId id) {
  return static_cast<std::uint64_t>(ToInt(id)) - static_cast<std::uint64_t>(slice.row_begin);
}

}  // namespace

void RowSelection::Select(std::span<const RowId> ids, const Slice& slice) {
  ResizeReused(slots_, ids.size());
  ResizeReused(positions_, ids.size());
  const auto rows = static_cast<std::uint64_t>(slice.rows());
  std::size_t found = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t offset = OffsetIn(slice, ids[i]);
    slots_[found] = static_cast<std::uint32_t>(offset);
    positions_[found] = static_cast<std::uint32_t>(i);
    found += offset < rows ? 1 : 0;
  }
  all_ = found == ids.size();
  slots_.resize(found);
  positions_.resize(found);
}

absl::Status RowSelection::Gather(const RowStore& store, ColumnRange columns,
                                  const kernels::Output& out) {
  if (all_) return store.Gather(slots_, columns, out);
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  const std::size_t rows_at_once = std::max<std::size_t>(1, kScatterBytes / row_bytes);
  rows_.resize(rows_at_once * row_bytes);
  const kernels::Output packed{rows_.data(), row_bytes, out.element};
  const std::span<const std::uint32_t> slots(slots_);
  for (std::size_t first = 0; first < slots.size(); first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, slots.size() - first);
    EMBLA_RETURN_IF_ERROR(store.Gather(slots.subspan(first, count), columns, packed));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<std::byte*>(out.base) + positions_[first + i] * out.stride_bytes,
                  rows_.data() + i * row_bytes, row_bytes);
    }
  }
  return absl::OkStatus();
}

void BagSelection::Select(const LookupPart& part, const OwnSlice& own) {
  const Slice& slice = own.slice;
  store_ = own.store.get();
  ResizeReused(slots_, part.ids.size());
  ResizeReused(weights_, part.weights.size());
  ResizeReused(lengths_, part.lengths.size());
  next_bag_ = next_slot_ = 0;
  const auto rows = static_cast<std::uint64_t>(slice.rows());
  std::size_t found = 0, id = 0;
  for (std::size_t bag = 0; bag < part.lengths.size(); ++bag) {
    const std::size_t bag_begin = found;
    for (const std::size_t bag_end = id + part.lengths[bag]; id < bag_end; ++id) {
      const std::uint64_t offset = OffsetIn(slice, part.ids[id]);
      slots_[found] = static_cast<std::uint32_t>(offset);
      if (!part.weights.empty()) weights_[found] = part.weights[id];
      found += offset < rows ? 1 : 0;
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
