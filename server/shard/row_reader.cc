#include "server/shard/row_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/row_kernels.h"
#include "server/table/row_io.h"

namespace embla {

absl::StatusOr<std::unique_ptr<RowReader>> RowReader::Create(std::shared_ptr<TableShard> shard,
                                                             const TableSpec& spec,
                                                             const ShardNode::RowsQuery& query,
                                                             DeviceExecutors& executors,
                                                             BufferPool& pool) {
  if (query.row_begin < 0 || query.row_end < query.row_begin || query.row_end > shard->rows()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", shard->name(), ": rows [",
                                                   query.row_begin, ", ", query.row_end, ") of ",
                                                   shard->rows()));
  }
  for (const RowId row : query.row_ids) {
    if (shard->InTable(row)) continue;
    return absl::OutOfRangeError(absl::StrCat("table ", shard->name(), " has rows 0 to ",
                                              shard->rows() - 1, ", got id ", ToInt(row)));
  }
  std::unique_ptr<RowReader> reader(new RowReader(std::move(shard), query, executors, pool));
  for (std::uint32_t d = 0; d < executors.devices(); ++d) {
    if (!reader->shard_->devices().Has(d)) continue;
    for (std::size_t s = 0; s < reader->shard_->slices(d).size(); ++s)
      reader->Add(spec, query, d, s);
  }
  return reader;
}

// The rectangles of slices never change: no device thread is needed.
void RowReader::Add(const TableSpec& spec, const ShardNode::RowsQuery& query, std::uint32_t device,
                    std::size_t slice) {
  const OwnSlice& own = shard_->slices(device)[slice];
  SliceRows rows{device, slice, RowsPerBlock(spec, own.columns(), with_state_), 0, 0, {}};
  if (query.row_ids.empty()) {
    rows.next_row = std::max(query.row_begin, own.slice.row_begin);
    rows.end_row = std::min(query.row_end, own.slice.row_end);
  }
  std::copy_if(query.row_ids.begin(), query.row_ids.end(), std::back_inserter(rows.rows),
               [&](RowId id) {
                 const std::int64_t row = shard_->id_rows().RowOf(id);
                 return row >= own.slice.row_begin && row < own.slice.row_end;
               });
  slices_.push_back(std::move(rows));
}

std::vector<RowId> RowReader::TakeRows(SliceRows& slice) {
  std::vector<RowId> rows;
  const std::size_t end = std::min(slice.next + slice.rows_per_block, slice.rows.size());
  for (; slice.next < end; ++slice.next) rows.push_back(slice.rows[slice.next]);
  while (slice.next_row < slice.end_row && rows.size() < slice.rows_per_block) {
    rows.push_back(RowId{slice.next_row++});
  }
  return rows;
}

// `rows`, ascending unless they are ids, become the ids among them that have a row.
absl::Status RowReader::FindResidents(const OwnSlice& own, std::vector<RowId>& rows) const {
  std::vector<RowId> ids;
  if (by_id_) {
    EMBLA_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> slots, own.ids->SlotsOf(rows));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (slots[i] != kernels::kNoSlot) ids.push_back(rows[i]);
    }
  } else if (!rows.empty()) {
    const std::int64_t begin = ToInt(rows.front());
    EMBLA_ASSIGN_OR_RETURN(const std::vector<std::optional<RowId>> owners,
                           own.ids->IdsAt(begin, ToInt(rows.back()) + 1));
    for (const RowId row : rows) {
      const std::optional<RowId>& id = owners[static_cast<std::size_t>(ToInt(row) - begin)];
      if (id.has_value()) ids.push_back(*id);
    }
  }
  rows = std::move(ids);
  return absl::OkStatus();
}

// Before the rows are read: what moves away later was read before it could be updated elsewhere.
RowIntervals RowReader::ClosedRows(const SliceRows& slice) {
  RowIntervals closed;
  if (!shard_->units().any_gates()) return closed;
  const ColumnRange columns = shard_->slices(slice.device)[slice.slice].columns();
  ReadOnDevices(executors_, DeviceSet::Of(shard_->lead_device()),
                [&](std::uint32_t) { closed = shard_->units().ClosedRows(columns); });
  return closed;
}

absl::StatusOr<std::optional<Buffer>> RowReader::Encode(const OwnSlice& own,
                                                        const RowIntervals& closed,
                                                        std::vector<RowId> rows) {
  std::erase_if(rows, [&](RowId id) {
    const std::int64_t row = by_id_ ? shard_->id_rows().RowOf(id) : ToInt(id);
    return !own.present.Contains(row) || closed.Contains(row);
  });
  if (own.ids != nullptr) EMBLA_RETURN_IF_ERROR(FindResidents(own, rows));
  if (rows.empty()) return std::nullopt;
  absl::StatusOr<Buffer> block = EncodeRows(*shard_, own, rows, with_state_, &pool_);
  if (!block.ok()) return block.status();
  return *std::move(block);
}

absl::StatusOr<std::optional<Buffer>> RowReader::Next() {
  while (current_ < slices_.size()) {
    std::vector<RowId> rows = TakeRows(slices_[current_]);
    if (rows.empty()) {
      ++current_;
      continue;
    }
    const RowIntervals closed = ClosedRows(slices_[current_]);
    absl::StatusOr<std::optional<Buffer>> block = std::nullopt;
    ReadOnDevices(executors_, DeviceSet::Of(slices_[current_].device), [&](std::uint32_t device) {
      block = Encode(shard_->slices(device)[slices_[current_].slice], closed, std::move(rows));
    });
    if (!block.ok() || block->has_value()) return block;
  }
  return std::nullopt;
}

}  // namespace embla
