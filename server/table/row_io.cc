#include "server/table/row_io.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/optimizer/optimizer.h"

namespace embla {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

RowBlockShape ShapeOf(const TableSpec& spec, ColumnRange columns, bool with_state) {
  RowBlockShape shape;
  shape.table = spec.id;
  shape.column_begin = columns.begin;
  shape.column_end = columns.end;
  shape.dtype = spec.dtype;
  if (with_state) {
    shape.state_floats = static_cast<std::uint32_t>(Optimizer(spec).StateFloats(columns.size()));
  }
  return shape;
}

// Rows [first, last) of `block`, all of them in `own`.
absl::Status WriteRun(OwnSlice& own, const RowBlock& block, std::size_t first, std::size_t last) {
  std::vector<std::uint32_t> slots;
  for (std::size_t i = first; i < last; ++i) {
    slots.push_back(static_cast<std::uint32_t>(ToInt(block.rows[i]) - own.slice.row_begin));
  }
  const std::size_t row_bytes = RowBytes(block.shape.dtype, block.shape.columns());
  const std::size_t state_floats = block.shape.state_floats;
  return own.store->WriteRows(
      slots, {block.shape.column_begin, block.shape.column_end},
      {block.weights.subspan(first * row_bytes, slots.size() * row_bytes),
       block.state.subspan(first * state_floats, slots.size() * state_floats)});
}

// Rows, by what names them, and where they are in their slice.
struct PlacedRows {
  std::span<const RowId> names;
  std::vector<std::uint32_t> slots;
};

std::vector<std::uint32_t> SlotsOf(const OwnSlice& own, std::span<const RowId> rows) {
  std::vector<std::uint32_t> slots;
  slots.reserve(rows.size());
  for (const RowId row : rows) {
    slots.push_back(static_cast<std::uint32_t>(ToInt(row) - own.slice.row_begin));
  }
  return slots;
}

absl::StatusOr<Buffer> Encode(const TableShard& shard, const OwnSlice& own, const PlacedRows& rows,
                              bool with_state, BufferPool* pool) {
  RowBlockBuilder builder(ShapeOf(shard.spec(own.slice.device.index), own.columns(), with_state),
                          static_cast<std::uint32_t>(rows.slots.size()), pool);
  std::copy(rows.names.begin(), rows.names.end(), builder.rows().begin());
  std::vector<float> unwanted;
  if (!with_state) unwanted.resize(rows.slots.size() * own.store->StateFloats(own.slice.columns()));
  EMBLA_RETURN_IF_ERROR(own.store->ReadRows(
      rows.slots, own.columns(),
      {builder.weights(), with_state ? builder.state() : std::span<float>(unwanted)}));
  return builder.Finish();
}

}  // namespace

std::size_t RowsPerBlock(const TableSpec& spec, ColumnRange columns, bool with_state) {
  return std::max<std::size_t>(1, kBlockBytes / ShapeOf(spec, columns, with_state).RowBytesTotal());
}

absl::StatusOr<Buffer> EncodeRows(const TableShard& shard, const OwnSlice& own,
                                  std::span<const RowId> rows, bool with_state, BufferPool* pool) {
  if (own.ids == nullptr) return Encode(shard, own, {rows, SlotsOf(own, rows)}, with_state, pool);
  EMBLA_ASSIGN_OR_RETURN(std::vector<std::uint32_t> slots, own.ids->SlotsOf(rows));
  EMBLA_CHECK(std::find(slots.begin(), slots.end(), kernels::kNoSlot) == slots.end());
  return Encode(shard, own, {rows, std::move(slots)}, with_state, pool);
}

absl::StatusOr<Buffer> EncodeRowsAt(const TableShard& shard, const OwnSlice& own,
                                    std::span<const RowId> rows, BufferPool* pool) {
  return Encode(shard, own, {rows, SlotsOf(own, rows)}, /*with_state=*/true, pool);
}

absl::Status CheckFits(const TableShard& shard, const OwnSlice& own, const RowBlockShape& shape) {
  if (shape.table != shard.id() || shape.dtype != shard.dtype()) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block of table ", ToInt(shape.table), " with dtype ",
                     static_cast<int>(shape.dtype), " does not fit table ", ToInt(shard.id()),
                     " with dtype ", static_cast<int>(shard.dtype())));
  }
  if (shape.column_begin < own.slice.column_begin || shape.column_end > own.slice.column_end) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", shard.name(), ": row block of columns [", shape.column_begin, ", ",
                     shape.column_end, ") does not fit a slice of columns [",
                     own.slice.column_begin, ", ", own.slice.column_end, ")"));
  }
  const std::size_t state_floats = own.store->StateFloats(shape.columns());
  if (shape.state_floats == state_floats) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", shard.name(), ": row block has ",
                                                 shape.state_floats, " floats of state per row, ",
                                                 "its optimizer has ", state_floats));
}

absl::Status WriteRowBlock(TableShard& shard, std::uint32_t device, const RowBlock& block) {
  for (OwnSlice& own : shard.slices(device)) {
    if (own.store == nullptr || own.slice.column_end <= block.shape.column_begin ||
        own.slice.column_begin >= block.shape.column_end) {
      continue;
    }
    EMBLA_RETURN_IF_ERROR(CheckFits(shard, own, block.shape));
    const auto is_own = [&](RowId row) {
      return ToInt(row) >= own.slice.row_begin && ToInt(row) < own.slice.row_end;
    };
    for (std::size_t first = 0; first < block.rows.size();) {
      const auto run = block.rows.subspan(first);
      const auto skipped = std::find_if(run.begin(), run.end(), is_own) - run.begin();
      const auto end = std::find_if_not(run.begin() + skipped, run.end(), is_own) - run.begin();
      if (end > skipped) EMBLA_RETURN_IF_ERROR(WriteRun(own, block, first + skipped, first + end));
      first += end;
    }
  }
  return absl::OkStatus();
}

absl::Status WriteRowBlock(TableShard& shard, OwnSlice& own, const RowBlock& block) {
  EMBLA_RETURN_IF_ERROR(CheckFits(shard, own, block.shape));
  return WriteRun(own, block, 0, block.rows.size());
}

}  // namespace embla
