// All that a node has of a table's rows, as bytes to be compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "server/shard/shard_node.h"

namespace embla::testing {

// Weights and state, by row and first column.
using NodeRows = std::map<std::pair<std::int64_t, std::uint32_t>, std::string>;

inline absl::StatusOr<NodeRows> ReadNodeRows(ShardNode& node, const TableSpec& spec,
                                             std::uint32_t group) {
  NodeRows all;
  ShardNode::RowsQuery query;
  query.table = spec.id;
  query.row_end = spec.rows;
  query.with_state = true;
  query.replica_group = group;
  EMBLA_RETURN_IF_ERROR(node.ReadRows(query, [&](Buffer bytes) {
    const absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes.bytes());
    EMBLA_CHECK(block.ok());
    const std::size_t row_bytes = RowBytes(block->shape.dtype, block->shape.columns());
    const std::size_t floats = block->shape.state_floats;
    for (std::size_t i = 0; i < block->rows.size(); ++i) {
      std::string& image = all[{ToInt(block->rows[i]), block->shape.column_begin}];
      image.assign(reinterpret_cast<const char*>(block->weights.data()) + i * row_bytes, row_bytes);
      image.append(reinterpret_cast<const char*>(block->state.data() + i * floats), floats * 4);
    }
    return absl::OkStatus();
  }));
  return all;
}

}  // namespace embla::testing
