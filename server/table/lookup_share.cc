#include "server/table/lookup_share.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/table/reused_vector.h"

namespace embla {
namespace {

// How many of `rows` rows are staged at once after they came from `store`.
std::size_t RowsAtOnce(const RowStore& store, std::size_t rows, std::size_t row_bytes) {
  return std::clamp<std::size_t>(store.piece_bytes() / row_bytes, 1,
                                 std::max<std::size_t>(rows, 1));
}

// Slot of any id; meaningless unless the slice has the id.
std::uint32_t SlotOf(const Slice& slice, RowId id) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(ToInt(id)) -
                                    static_cast<std::uint64_t>(slice.row_begin));
}

// The result of pooling no rows.
absl::Status ZeroRows(std::size_t count, ColumnRange columns, const kernels::Output& out) {
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  for (std::size_t row = 0; row < count; ++row) {
    std::memset(static_cast<std::byte*>(out.base) + row * out.stride_bytes, 0, row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

void HashedIds::Reset(const OwnSlice& own, std::size_t ids_max) {
  ids.resize(own.ids == nullptr ? 0 : ids_max);
  places.initial_at.clear();
  places.initial_of.clear();
  status = absl::OkStatus();
}

void HashedIds::FindIn(const OwnSlice& own, std::size_t found, std::vector<std::uint32_t>& slots) {
  ids.resize(found);
  status = own.ids->Find(ids, places);
  slots.swap(places.slots);
}

void RowSelection::Select(std::span<const RowId> ids, const OwnSlice& own) {
  store_ = own.store.get();
  hashed_.Reset(own, ids.size());
  WithPresence(own, [&](const auto& has) {
    if (own.ids != nullptr) {
      SelectIf(ids, has, [&](std::size_t at, RowId id) { hashed_.ids[at] = id; });
    } else {
      SelectIf(ids, has, [&](std::size_t at, RowId id) { slots_[at] = SlotOf(own.slice, id); });
    }
  });
  if (own.ids != nullptr) hashed_.FindIn(own, slots_.size(), slots_);
}

template <typename Has, typename Take>
void RowSelection::SelectIf(std::span<const RowId> ids, const Has& has, const Take& take) {
  ResizeReused(slots_, ids.size());
  ResizeReused(positions_, ids.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    take(found, ids[i]);
    positions_[found] = static_cast<std::uint32_t>(i);
    found += has(ToInt(ids[i])) ? 1 : 0;
  }
  all_ = found == ids.size();
  slots_.resize(found);
  positions_.resize(found);
}

absl::Status RowSelection::Gather(ColumnRange columns, const kernels::Output& out) {
  if (slots_.empty()) return absl::OkStatus();  // There may be no store.
  EMBLA_RETURN_IF_ERROR(hashed_.status);
  EMBLA_RETURN_IF_ERROR(GatherSlots(columns, out));
  return hashed_.places.initial_at.empty() ? absl::OkStatus() : GatherInitial(columns, out);
}

// Over the zeros that their slots read as.
absl::Status RowSelection::GatherInitial(ColumnRange columns, const kernels::Output& out) {
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  const std::span<const RowId> ids(hashed_.places.initial_of);
  const std::size_t rows_at_once = RowsAtOnce(*store_, ids.size(), row_bytes);
  rows_.resize(std::max(rows_.size(), rows_at_once * row_bytes));
  for (std::size_t first = 0; first < ids.size(); first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, ids.size() - first);
    EMBLA_RETURN_IF_ERROR(store_->GatherInitial(ids.subspan(first, count), columns,
                                                {rows_.data(), row_bytes, out.element}));
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = positions_[hashed_.places.initial_at[first + i]];
      std::memcpy(static_cast<std::byte*>(out.base) + row * out.stride_bytes,
                  rows_.data() + i * row_bytes, row_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status RowSelection::GatherSlots(ColumnRange columns, const kernels::Output& out) {
  if (all_) return store_->Gather(slots_, columns, out);
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns.size());
  const std::size_t rows_at_once = RowsAtOnce(*store_, slots_.size(), row_bytes);
  rows_.resize(std::max(rows_.size(), rows_at_once * row_bytes));
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
  hashed_.Reset(own, part.ids.size());
  WithPresence(own, [&](const auto& has) {
    if (own.ids != nullptr) {
      SelectIf(part, has, [&](std::size_t at, RowId id) { hashed_.ids[at] = id; });
    } else {
      SelectIf(part, has, [&](std::size_t at, RowId id) { slots_[at] = SlotOf(own.slice, id); });
    }
  });
  if (own.ids != nullptr) hashed_.FindIn(own, slots_.size(), slots_);
}

template <typename Has, typename Take>
void BagSelection::SelectIf(const LookupPart& part, const Has& has, const Take& take) {
  ResizeReused(slots_, part.ids.size());
  ResizeReused(weights_, part.weights.size());
  ResizeReused(lengths_, part.lengths.size());
  next_bag_ = next_slot_ = 0;
  std::size_t found = 0, id = 0;
  for (std::size_t bag = 0; bag < part.lengths.size(); ++bag) {
    const std::size_t bag_begin = found;
    for (const std::size_t bag_end = id + part.lengths[bag]; id < bag_end; ++id) {
      take(found, part.ids[id]);
      if (!part.weights.empty()) weights_[found] = part.weights[id];
      found += has(ToInt(part.ids[id])) ? 1 : 0;
    }
    lengths_[bag] = static_cast<std::uint32_t>(found - bag_begin);
  }
  slots_.resize(found);
}

kernels::Bags BagSelection::TakeBags(std::size_t count) {
  EMBLA_CHECK(next_bag_ + count <= lengths_.size());
  kernels::Bags bags;
  bags.lengths = std::span<const std::uint32_t>(lengths_).subspan(next_bag_, count);
  std::size_t slots = 0;
  for (const std::uint32_t length : bags.lengths) slots += length;
  bags.slots = std::span<const std::uint32_t>(slots_).subspan(next_slot_, slots);
  if (!weights_.empty()) bags.weights = weights_.data() + next_slot_;
  next_bag_ += count;
  next_slot_ += slots;
  return bags;
}

bool BagSelection::PoolsToWire(std::size_t count) const {
  return store_ != nullptr && store_->PoolsToWire(count) && !slots_.empty() &&
         hashed_.places.initial_at.empty();
}

absl::Status BagSelection::PoolNextToWire(std::span<const std::uint32_t> divisors,
                                          std::size_t count, ColumnRange columns,
                                          const kernels::Output& out) {
  const kernels::Bags bags = TakeBags(count);
  EMBLA_RETURN_IF_ERROR(hashed_.status);
  return store_->PoolToWire(bags, divisors, columns, out);
}

absl::Status BagSelection::PoolNext(std::size_t count, ColumnRange columns,
                                    const kernels::Output& out) {
  const kernels::Bags bags = TakeBags(count);
  if (store_ == nullptr || bags.slots.empty()) return ZeroRows(count, columns, out);
  EMBLA_RETURN_IF_ERROR(hashed_.status);
  if (!hashed_.places.initial_at.empty()) return PoolStaged(bags, columns, out);
  return store_->Pool(bags, columns, out);
}

absl::Status BagSelection::PoolStaged(const kernels::Bags& bags, ColumnRange columns,
                                      const kernels::Output& out) {
  const std::size_t row_bytes = columns.size() * sizeof(float);
  std::size_t first_slot = static_cast<std::size_t>(bags.slots.data() - slots_.data());
  kernels::Output at = out;
  for (std::size_t bag = 0; bag < bags.lengths.size();) {
    const std::size_t first_bag = bag;
    std::size_t slots = 0;
    do {
      slots += bags.lengths[bag++];
    } while (bag < bags.lengths.size() &&
             (slots + bags.lengths[bag]) * row_bytes < store_->piece_bytes());
    EMBLA_RETURN_IF_ERROR(Stage(first_slot, slots, columns));
    for (std::size_t i = positions_.size(); i < slots; ++i) {
      positions_.push_back(static_cast<std::uint32_t>(i));
    }
    const kernels::Bags staged{std::span(positions_).first(slots),
                               bags.lengths.subspan(first_bag, bag - first_bag),
                               weights_.empty() ? nullptr : weights_.data() + first_slot};
    kernels::Pool({staged_.data(), row_bytes, columns.size(), kernels::Element::kFloat32}, staged,
                  at);
    first_slot += slots;
    at.base = static_cast<std::byte*>(at.base) + (bag - first_bag) * at.stride_bytes;
  }
  return absl::OkStatus();
}

absl::Status BagSelection::Stage(std::size_t first, std::size_t count, ColumnRange columns) {
  const std::size_t row_bytes = columns.size() * sizeof(float);
  ResizeReused(staged_, count * columns.size());
  EMBLA_RETURN_IF_ERROR(store_->Gather(std::span<const std::uint32_t>(slots_).subspan(first, count),
                                       columns,
                                       {staged_.data(), row_bytes, kernels::Element::kFloat32}));
  const std::vector<std::uint32_t>& initial_at = hashed_.places.initial_at;
  auto next = std::lower_bound(initial_at.begin(), initial_at.end(), first);
  for (; next != initial_at.end() && *next < first + count; ++next) {
    const std::size_t i = static_cast<std::size_t>(next - initial_at.begin());
    float* const row = staged_.data() + (*next - first) * columns.size();
    EMBLA_RETURN_IF_ERROR(
        store_->GatherInitial(std::span<const RowId>(hashed_.places.initial_of).subspan(i, 1),
                              columns, {row, row_bytes, kernels::Element::kFloat32}));
  }
  return absl::OkStatus();
}

LookupScratch& LookupScratch::OfThread() {
  thread_local LookupScratch scratch;
  return scratch;
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
