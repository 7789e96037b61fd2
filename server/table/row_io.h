// Rows of a table's slices as row blocks (core/rows/row_block.h), and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/rows/row_block.h"
#include "server/table/table_shard.h"

namespace embla {

// Rows of `columns` of a table in a block of about 1 MiB; the same on every node.
std::size_t RowsPerBlock(const TableSpec& spec, ColumnRange columns, bool with_state);

// The columns of `own` of `rows`, which are in its rectangle, and its store is there; of a ZCH
// table, of ids that have a row. On the slice's device. `pool` may be null.
absl::StatusOr<Buffer> EncodeRows(const TableShard& shard, const OwnSlice& own,
                                  std::span<const RowId> rows, bool with_state, BufferPool* pool);

// The same with state, of rows of the table; of a ZCH table, whoever's they are.
absl::StatusOr<Buffer> EncodeRowsAt(const TableShard& shard, const OwnSlice& own,
                                    std::span<const RowId> rows, BufferPool* pool);

// InvalidArgument: a block of another table, number format or optimizer, or of columns that are cut
// otherwise.
absl::Status CheckFits(const TableShard& shard, const OwnSlice& own, const RowBlockShape& shape);

// Installs the rows of `block` that `device` has; the block has state. On that device.
// InvalidArgument: another table, number format or optimizer, or columns that are cut otherwise.
absl::Status WriteRowBlock(TableShard& shard, std::uint32_t device, const RowBlock& block);
// The same for one slice, present or not, that has all rows of the block.
absl::Status WriteRowBlock(TableShard& shard, OwnSlice& own, const RowBlock& block);

}  // namespace embla
