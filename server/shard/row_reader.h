// The rows of a table on this node as a stream of row blocks, for DataService.ReadRows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/rows/row_stream.h"
#include "server/shard/shard_node.h"
#include "server/table/device_executor.h"
#include "server/table/table_shard.h"

namespace embla {

// Reads block by block on the devices' threads, so requests go on in between.
// Must be used outside of device threads.
class RowReader final : public RowSource {
 public:
  // `spec` is the table's. `executors` and `pool` are not owned and outlive the reader. Errors:
  // InvalidArgument (range), OutOfRange (a row id outside the table).
  static absl::StatusOr<std::unique_ptr<RowReader>> Create(std::shared_ptr<TableShard> shard,
                                                           const TableSpec& spec,
                                                           const ShardNode::RowsQuery& query,
                                                           DeviceExecutors& executors,
                                                           BufferPool& pool);

  absl::StatusOr<std::optional<Buffer>> Next() override;

 private:
  struct SliceRows {
    std::uint32_t device;
    std::size_t slice;  // Position among the device's slices.
    std::size_t rows_per_block;
    std::int64_t next_row;  // Next row of a range.
    std::int64_t end_row;
    std::vector<RowId> rows;  // If not empty, these instead.
    std::size_t next = 0;
  };

  RowReader(std::shared_ptr<TableShard> shard, const ShardNode::RowsQuery& query,
            DeviceExecutors& executors, BufferPool& pool)
      : shard_(std::move(shard)),
        with_state_(query.with_state),
        by_id_(!query.row_ids.empty()),
        executors_(executors),
        pool_(pool) {}
  void Add(const TableSpec& spec, const ShardNode::RowsQuery& query, std::uint32_t device,
           std::size_t slice);
  static std::vector<RowId> TakeRows(SliceRows& slice);
  // Rows of units that have moved away, though they may still be here.
  RowIntervals ClosedRows(const SliceRows& slice);
  // Encodes the rows among `rows` that are here and not in `closed`; nothing if there is none. On
  // the slice's device.
  absl::StatusOr<std::optional<Buffer>> Encode(const OwnSlice& own, const RowIntervals& closed,
                                               std::vector<RowId> rows);
  // The same of a ZCH table: `rows` are rows of a range, or ids; the block has ids.
  absl::Status FindResidents(const OwnSlice& own, std::vector<RowId>& rows) const;

  const std::shared_ptr<TableShard> shard_;
  const bool with_state_;
  const bool by_id_;  // A query of row ids, not of a range.
  DeviceExecutors& executors_;
  BufferPool& pool_;
  std::vector<SliceRows> slices_;
  std::size_t current_ = 0;
};

}  // namespace embla
