// Chunks of a unit's rows, as they travel: row blocks with all state (docs/row_block.md). A bucket
// of a ZCH table is one chunk: what is known of its ids, then the rows in use. A chunk of a table
// with replica groups has a row block per group (docs/migration.md#chunks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/rows/row_block.h"
#include "server/migration/unit_host.h"
#include "server/table/table_shard.h"

namespace embla {

// A decoded chunk: views over its bytes.
struct UnitChunk {
  std::span<const std::byte> bucket;  // ZCH tables: a bucket block (docs/zch.md).
  RowBlock rows;                      // Their ids are rows of the table.
};

// The rows of a chunk. Requires: chunk < shape.chunks().
RowInterval RowsOfChunk(const UnitShape& shape, std::uint32_t chunk);

// After `rows`, those of a unit, came to the slice or left it: a ZCH slice knows a bucket as long
// as its rows are present or staged. On the slice's device.
void MatchBucket(OwnSlice& own, RowInterval rows);

// Rows of the chunk that `own` has. On the slice's device. `pool` may be null.
// Requires: chunk < shape.chunks().
absl::StatusOr<Buffer> EncodeChunk(const TableShard& table, const OwnSlice& own,
                                   const UnitShape& shape, std::uint32_t chunk, BufferPool* pool);

// The same of the ZCH bucket whose rows begin with `row_begin`, with the rows in use that are among
// `rows`, ascending. On the slice's device.
absl::StatusOr<Buffer> EncodeBucketRows(const TableShard& table, const OwnSlice& own,
                                        std::int64_t row_begin, const std::vector<RowId>& rows);

// The row blocks of the copies, by replica group, as one chunk; of one copy, its block.
Buffer JoinCopies(std::vector<Buffer> blocks);
// The parts of a chunk of `copies` copies. InvalidArgument, DataLoss: nothing that JoinCopies made.
// Requires: bytes.data() is 8-byte aligned, as buffers are, and so are the parts.
absl::StatusOr<std::vector<std::span<const std::byte>>> SplitCopies(
    std::span<const std::byte> bytes, std::size_t copies);

// Decodes a chunk of one copy. InvalidArgument (not a chunk, or not this one), DataLoss (damaged).
// Requires: bytes.data() is 8-byte aligned, as buffers are; chunk < shape.chunks().
absl::StatusOr<UnitChunk> DecodeChunk(std::span<const std::byte> bytes, const TableShard& table,
                                      const UnitShape& shape, std::uint32_t chunk);

// Writes the rows to `own`, which stages them. On the slice's device. Errors change nothing:
// InvalidArgument (another number format or optimizer, or a bucket of other options), DataLoss.
absl::Status WriteChunk(TableShard& table, OwnSlice& own, const UnitShape& shape,
                        const UnitChunk& chunk);

}  // namespace embla
