#include "server/shard/unit_io.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/table/row_io.h"

namespace embla {

RowInterval RowsOfChunk(const UnitShape& shape, std::uint32_t chunk) {
  const std::int64_t begin = shape.row_begin + chunk * shape.chunk_rows;
  return {begin, std::min(begin + shape.chunk_rows, shape.row_end)};
}

absl::StatusOr<Buffer> EncodeChunk(const TableShard& table, const OwnSlice& own,
                                   const UnitShape& shape, std::uint32_t chunk) {
  const RowInterval interval = RowsOfChunk(shape, chunk);
  std::vector<RowId> rows;
  for (std::int64_t row = interval.begin; row < interval.end; ++row) rows.push_back(RowId{row});
  return EncodeRows(table, own, rows, /*with_state=*/true, /*pool=*/nullptr);
}

absl::Status CheckChunk(const RowBlock& block, TableId table, const UnitShape& shape,
                        std::uint32_t chunk) {
  const RowInterval interval = RowsOfChunk(shape, chunk);
  bool matches = block.shape.table == table && block.shape.column_begin == shape.column_begin &&
                 block.shape.column_end == shape.column_end &&
                 block.rows.size() == static_cast<std::size_t>(interval.end - interval.begin);
  for (std::size_t i = 0; matches && i < block.rows.size(); ++i) {
    matches = ToInt(block.rows[i]) == interval.begin + static_cast<std::int64_t>(i);
  }
  if (matches) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "row block of table ", ToInt(block.shape.table), ", columns [", block.shape.column_begin,
      ", ", block.shape.column_end, "), ", block.rows.size(), " rows is not chunk ", chunk,
      " of table ", ToInt(table), ", columns [", shape.column_begin, ", ", shape.column_end,
      "), rows [", interval.begin, ", ", interval.end, ")"));
}

}  // namespace embla
