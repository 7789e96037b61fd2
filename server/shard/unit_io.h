// Chunks of a unit's rows, as they travel: row blocks with all state (docs/row_block.md).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/rows/row_block.h"
#include "server/migration/unit_host.h"
#include "server/table/table_shard.h"

namespace embla {

// The rows of a chunk. Requires: chunk < shape.chunks().
RowInterval RowsOfChunk(const UnitShape& shape, std::uint32_t chunk);

// Those rows of `own`, where they are present. On the slice's device.
absl::StatusOr<Buffer> EncodeChunk(const TableShard& table, const OwnSlice& own,
                                   const UnitShape& shape, std::uint32_t chunk);

// Whether `block` has the rows of the chunk, all of them, ascending. InvalidArgument.
absl::Status CheckChunk(const RowBlock& block, TableId table, const UnitShape& shape,
                        std::uint32_t chunk);

}  // namespace embla
