#include "server/shard/table_inspector.h"

#include <map>
#include <optional>
#include <span>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "server/shard/row_reader.h"
#include "server/table/unit_shape.h"

namespace embla {
namespace {

// One copy of the table.
class Inspection {
 public:
  Inspection(const TableSpec& spec, std::shared_ptr<TableShard> shard, std::uint32_t group,
             DeviceExecutors& executors)
      : spec_(spec), shard_(std::move(shard)), group_(group), executors_(executors) {}

  // Lists the units on this node.
  void ListUnits() {
    std::vector<std::vector<UnitContent>> by_device(executors_.devices());
    ReadOnDevices(executors_, shard_->devices(), [&](std::uint32_t device) {
      for (const OwnSlice& own : shard_->slices(device)) {
        for (const RowInterval& rows : own.present.intervals()) {
          AddUnits(device, own, rows, UnitContent::State::kServed, by_device[device]);
        }
        for (const RowInterval& rows : own.staged.intervals()) {
          AddUnits(device, own, rows, UnitContent::State::kStaged, by_device[device]);
        }
      }
    });
    for (std::vector<UnitContent>& units : by_device) {
      units_.insert(units_.end(), units.begin(), units.end());
    }
    MarkRetained();
    for (UnitContent& unit : units_) {
      if (unit.state == UnitContent::State::kServed) {
        served_[{unit.row_granule, unit.column_begin}] = &unit;
      }
    }
  }

  absl::Status ReadRows(BufferPool& pool, const GivenUp& given_up) {
    ShardNode::RowsQuery query;
    query.table = shard_->id();
    query.row_end = shard_->rows();
    query.with_state = true;
    query.replica_group = group_;
    EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<RowReader> reader,
                           RowReader::Create(shard_, spec_, query, executors_, pool));
    while (true) {
      if (IsGivenUp(given_up)) return absl::CancelledError("nobody waits for the content");
      EMBLA_ASSIGN_OR_RETURN(const std::optional<Buffer> block, reader->Next());
      if (!block.has_value()) return absl::OkStatus();
      EMBLA_ASSIGN_OR_RETURN(const RowBlock rows, DecodeRowBlock(block->bytes()));
      Digest(rows);
    }
  }

  const std::vector<UnitContent>& units() const { return units_; }

 private:
  void AddUnits(std::uint32_t device, const OwnSlice& own, RowInterval rows,
                UnitContent::State state, std::vector<UnitContent>& units) const {
    for (std::uint32_t granule = RowGranuleOf(spec_, rows.begin);
         granule < spec_.row_granules && spec_.RowGranuleBegin(granule) < rows.end; ++granule) {
      UnitContent unit;
      unit.row_granule = granule;
      unit.column_begin = own.slice.column_begin;
      unit.column_end = own.slice.column_end;
      unit.replica_group = group_;
      unit.device = device;
      unit.state = state;
      units.push_back(unit);
    }
  }

  // The lead device knows whose gates send requests elsewhere.
  void MarkRetained() {
    if (!shard_->units().any_gates()) return;
    ReadOnDevices(executors_, DeviceSet::Of(shard_->lead_device()), [this](std::uint32_t) {
      for (UnitContent& unit : units_) {
        if (unit.state != UnitContent::State::kServed) continue;
        const RowIntervals& closed =
            shard_->units().ClosedRows({unit.column_begin, unit.column_end});
        if (closed.Contains(spec_.RowGranuleBegin(unit.row_granule))) {
          unit.state = UnitContent::State::kRetained;
        }
      }
    });
  }

  void Digest(const RowBlock& block) {
    const std::size_t row_bytes = block.weights.size() / block.rows.size();
    const std::size_t state_floats = block.shape.state_floats;
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const std::int64_t row = shard_->id_rows().RowOf(block.rows[i]);
      const auto unit = served_.find({RowGranuleOf(spec_, row), block.shape.column_begin});
      if (unit == served_.end()) continue;
      UnitContent& content = *unit->second;
      ++content.rows;
      std::uint32_t& crc = content.crc32c;
      crc = Crc32c(std::as_bytes(block.rows.subspan(i, 1)), crc);
      crc = Crc32c(block.weights.subspan(i * row_bytes, row_bytes), crc);
      crc = Crc32c(std::as_bytes(block.state.subspan(i * state_floats, state_floats)), crc);
    }
  }

  const TableSpec& spec_;
  const std::shared_ptr<TableShard> shard_;
  const std::uint32_t group_;
  DeviceExecutors& executors_;
  std::vector<UnitContent> units_;
  // By row granule and first column.
  std::map<std::pair<std::uint32_t, std::uint32_t>, UnitContent*> served_;
};

}  // namespace

absl::StatusOr<std::vector<UnitContent>> InspectTable(const NodeTable& table,
                                                      DeviceExecutors& executors, BufferPool& pool,
                                                      const GivenUp& given_up) {
  std::vector<UnitContent> units;
  for (std::uint32_t group = 0; group < table.shards.size(); ++group) {
    Inspection inspection(table.spec, table.shards[group], group, executors);
    inspection.ListUnits();
    EMBLA_RETURN_IF_ERROR(inspection.ReadRows(pool, given_up));
    units.insert(units.end(), inspection.units().begin(), inspection.units().end());
  }
  return units;
}

}  // namespace embla
