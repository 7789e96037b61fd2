// The node's images: what is not in its rows, taken while all devices stand still, and its rows,
// window by window.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "server/shard/image_tables.h"
#include "server/shard/meeting_task.h"
#include "server/shard/shard_node_impl.h"
#include "server/shard/table_steps.h"
#include "server/storage/dirty_rows.h"
#include "server/table/row_io.h"
#include "server/table/unit_io.h"
#include "server/table/unit_shape.h"

namespace embla {
namespace {

using ReadDone = std::function<void(absl::StatusOr<WindowRead>)>;

// The unit that a window of a ZCH table, a bucket, is.
UnitShape ShapeOfBucket(const TableSpec& spec, const RowWindow& window) {
  return ShapeOfUnit(spec, RowGranuleOf(spec, window.rows.begin), window.columns);
}

absl::Duration Since(std::chrono::steady_clock::time_point begun) {
  return absl::FromChrono(std::chrono::steady_clock::now() - begun);
}

// Every row has one device at each place of the order that all devices have in common, so the task
// is not a background task: rows that change devices are found on one of them, and all groups on
// the same side of each averaging.
class ReadWindowTask final : public DeviceTask {
 public:
  ReadWindowTask(std::shared_ptr<const NodeTable> table, const RowWindow& window, bool changed_only,
                 const Journal& journal, BufferPool& pool, std::size_t devices, ReadDone done)
      : table_(std::move(table)),
        window_(window),
        changed_only_(changed_only),
        rows_max_(RowsPerBlock(table_->spec, window.columns, /*with_state=*/true)),
        journal_(journal),
        pool_(pool),
        by_device_(devices),
        done_(std::move(done)) {
    for (OnDevice& own : by_device_) own.next_row = window.rows.end;
  }

  void Run(std::uint32_t device) override {
    for (std::uint32_t group = 0; group < table_->shards.size(); ++group) {
      TableShard& shard = *table_->shards[group];
      if (!shard.devices().Has(device)) continue;
      OnDevice& found = by_device_[device];
      found.rows_left = rows_max_;
      for (const OwnSlice* const own : SlicesOf(shard, device, window_.columns)) {
        const bool is_here = own->present.Intersects(window_.rows);
        if (!is_here && !(window_.is_coming && own->staged.Intersects(window_.rows))) continue;
        found.is_here |= is_here;
        const auto begun = std::chrono::steady_clock::now();
        absl::StatusOr<std::optional<Buffer>> bytes =
            Encode(shard, *own, is_here ? own->present : own->staged, found);
        if (!bytes.ok()) found.status = bytes.status();
        if (!bytes.ok() || !bytes->has_value()) continue;
        std::vector<WindowRows>& rows = is_here ? found.rows : found.staged;
        rows.push_back({group, journal_.position(), *std::move(*bytes), Since(begun)});
      }
    }
  }
  void Finish() override {
    WindowRead all{.rows = {}, .next_row = window_.rows.end};
    // Where a unit is here, what else is reserved for it has nothing of it.
    const bool is_here = std::ranges::any_of(by_device_, &OnDevice::is_here);
    for (OnDevice& own : by_device_) {
      if (!own.status.ok()) return done_(own.status);
      std::ranges::move(is_here ? own.rows : own.staged, std::back_inserter(all.rows));
      all.next_row = std::min(all.next_row, own.next_row);
    }
    done_(std::move(all));
  }

 private:
  struct OnDevice {
    absl::Status status;
    bool is_here = false;  // Some of the rows are.
    std::vector<WindowRows> rows;
    std::vector<WindowRows> staged;
    std::int64_t next_row = 0;  // The same as WindowRead's.
    std::size_t rows_left = 0;  // Rows that may still be read of the group.
  };

  // The device's with the window's columns, in the order of their rows.
  static std::vector<const OwnSlice*> SlicesOf(TableShard& shard, std::uint32_t device,
                                               ColumnRange columns) {
    std::vector<const OwnSlice*> slices;
    for (const OwnSlice& own : shard.slices(device)) {
      if (own.columns() == columns) slices.push_back(&own);
    }
    std::ranges::sort(slices, {}, [](const OwnSlice* own) { return own->slice.row_begin; });
    return slices;
  }

  absl::StatusOr<std::optional<Buffer>> Encode(const TableShard& shard, const OwnSlice& own,
                                               const RowIntervals& of, OnDevice& found) const {
    const bool is_bucket = own.ids != nullptr;
    if (is_bucket && !HasBucket(own, of)) return std::nullopt;
    const std::vector<RowId> rows = changed_only_ ? TakeChanged(own, of, found) : TakeAll(own, of);
    // The map of a bucket's ids changes without its rows, too.
    if (rows.empty() && !is_bucket) return std::nullopt;
    absl::StatusOr<Buffer> bytes = is_bucket
                                       ? EncodeBucketRows(shard, own, window_.rows.begin, rows)
                                       : EncodeRowsAt(shard, own, rows, &pool_);
    if (!bytes.ok()) return bytes.status();
    return *std::move(bytes);
  }

  bool HasBucket(const OwnSlice& own, const RowIntervals& of) const {
    return of.ContainsAll(window_.rows) &&
           own.ids->HasBucket(own.ids->BucketAt(window_.rows.begin));
  }

  // The window's rows among `of`, which count as read.
  std::vector<RowId> TakeAll(const OwnSlice& own, const RowIntervals& of) const {
    std::vector<RowId> rows;
    std::vector<std::uint32_t> changed;
    const RowIntervals here = of.CommonWith(RowIntervals(window_.rows));
    for (const RowInterval& interval : here.intervals()) {
      const std::int64_t count = interval.end - interval.begin;
      Take(own, interval, static_cast<std::size_t>(count), changed);
      for (std::int64_t row = interval.begin; row < interval.end; ++row) rows.push_back(RowId{row});
    }
    return rows;
  }

  // Rows that have changed, as many as are left to be read.
  std::vector<RowId> TakeChanged(const OwnSlice& own, const RowIntervals& of,
                                 OnDevice& found) const {
    std::vector<std::uint32_t> changed;
    const RowIntervals here = of.CommonWith(RowIntervals(window_.rows));
    for (const RowInterval& interval : here.intervals()) {
      const std::size_t before = changed.size();
      const std::int64_t next_row =
          found.rows_left == 0 ? interval.begin : Take(own, interval, found.rows_left, changed);
      found.rows_left -= std::min(found.rows_left, changed.size() - before);
      if (next_row == interval.end) continue;
      found.next_row = std::min(found.next_row, next_row);
      break;
    }
    std::vector<RowId> rows;
    for (const std::uint32_t slot : changed) rows.push_back(RowId{own.slice.row_begin + slot});
    return rows;
  }

  // Returns the row to go on at.
  static std::int64_t Take(const OwnSlice& own, const RowInterval& rows, std::size_t most,
                           std::vector<std::uint32_t>& slots) {
    const auto first = static_cast<std::uint32_t>(rows.begin - own.slice.row_begin);
    const auto count = static_cast<std::uint32_t>(rows.end - rows.begin);
    return own.slice.row_begin +
           own.store->dirty_rows()->Take(DirtyReader::kSnapshots, first, count, slots, most);
  }

  const std::shared_ptr<const NodeTable> table_;
  const RowWindow window_;
  const bool changed_only_;
  const std::size_t rows_max_;  // A device reads so many changed rows of a group, at most.
  const Journal& journal_;      // Not owned; outlives the task.
  BufferPool& pool_;            // Likewise.
  std::vector<OnDevice> by_device_;
  const ReadDone done_;
};

class WriteWindowTask final : public DeviceTask {
 public:
  WriteWindowTask(std::shared_ptr<const NodeTable> table, const RowWindow& window,
                  std::uint32_t group, UnitChunk rows, Buffer memory, std::size_t devices,
                  std::function<void(absl::Status)> done)
      : table_(std::move(table)),
        window_(window),
        group_(group),
        rows_(rows),
        memory_(std::move(memory)),
        by_device_(devices),
        done_(std::move(done)) {}

  void Run(std::uint32_t device) override {
    TableShard& shard = *table_->shards[group_];
    if (!table_->spec.zch.has_value()) {
      by_device_[device] = WriteRowBlock(shard, device, rows_.rows);
      return;
    }
    for (OwnSlice& own : shard.slices(device)) {
      if (own.columns() != window_.columns) continue;
      const bool is_known =
          own.present.ContainsAll(window_.rows) || own.staged.ContainsAll(window_.rows);
      if (!is_known) continue;
      by_device_[device].Update(
          WriteChunk(shard, own, ShapeOfBucket(table_->spec, window_), rows_));
    }
  }
  void Finish() override {
    absl::Status first;
    for (const absl::Status& status : by_device_) first.Update(status);
    done_(first);
  }

 private:
  const std::shared_ptr<const NodeTable> table_;
  const RowWindow window_;
  const std::uint32_t group_;
  const UnitChunk rows_;  // Views memory_.
  const Buffer memory_;
  std::vector<absl::Status> by_device_;
  const std::function<void(absl::Status)> done_;
};

absl::StatusOr<UnitChunk> DecodeWindow(const NodeTable& table, const RowWindow& window,
                                       std::uint32_t group, std::span<const std::byte> bytes) {
  const TableShard& shard = *table.shards[group];
  if (table.spec.zch.has_value()) {
    return DecodeChunk(bytes, shard, ShapeOfBucket(table.spec, window), /*chunk=*/0);
  }
  UnitChunk decoded;
  EMBLA_ASSIGN_OR_RETURN(decoded.rows, DecodeRowBlock(bytes));
  const std::span<const RowId> rows = decoded.rows.rows;
  const bool fits =
      std::ranges::all_of(rows, [&](RowId row) { return window.rows.Contains(ToInt(row)); });
  if (fits) return decoded;
  return absl::InvalidArgumentError("rows of another window");
}

}  // namespace

absl::StatusOr<NodeImages::Taken> ShardNodeImpl::Take(
    const std::function<absl::Status()>& meanwhile) {
  const MutexLock lock(install_mu_);  // No plan and no closed session is on its way.
  const NodeTablesPtr tables = this->tables();
  if (tables->plan->version() == PlanVersion{}) return absl::UnavailableError("no plan yet");
  // The record of the next plan goes on from the image's, or, without it, from this record.
  EMBLA_RETURN_IF_ERROR(journal_->Write(InstalledPlan{tables->plan, tables->self}));
  const std::vector<PlannedTable> planned = PlannedTables(*tables);
  Taken taken;
  taken.image.self = tables->self;
  taken.image.plan = tables->plan;
  absl::Status status;
  Mutex mu;
  CondVar changed;
  bool is_done = false;
  const DeviceSet all = DeviceSet::First(executors_->devices());
  const auto work = [&] {
    const auto begun = std::chrono::steady_clock::now();
    status = TakeStill(planned, taken);
    if (status.ok()) status = meanwhile();
    taken.held = Since(begun);
    const MutexLock done(mu);
    is_done = true;
    changed.NotifyAll();
  };
  executors_->SubmitControl(std::make_unique<MeetingTask>(all, work), all);
  const MutexLock wait(mu);
  while (!is_done) changed.Wait(mu);
  EMBLA_RETURN_IF_ERROR(status);
  return taken;
}

absl::Status ShardNodeImpl::TakeStill(const std::vector<PlannedTable>& planned, Taken& taken) {
  NodeImage& image = taken.image;
  image.position = journal_->position();
  image.time = options_.clock->Now();
  image.closed = sessions_.closed();
  image.sessions = sessions_.seen();
  for (const PlannedTable& table : planned) {
    EMBLA_RETURN_IF_ERROR(AddTable(table, image, taken.windows));
    const bool is_copy = table.table->copy != nullptr && !table.slices.empty();
    if (is_copy && replicator_.HasLeaving(table.spec->id)) {
      return absl::UnavailableError(
          absl::StrCat("table ", table.spec->name, ": a node is still to lose its copy"));
    }
  }
  return absl::OkStatus();
}

void ShardNodeImpl::Read(const RowWindow& window, bool changed_only, ReadDone done) {
  // No slice comes, and gets rows, between the look at the tables and the task's place.
  const MutexLock lock(install_mu_);
  const NodeTablesPtr tables = this->tables();
  const auto it = tables->tables.find(ToInt(window.table));
  if (it == tables->tables.end()) return done(WindowRead{.rows = {}, .next_row = window.rows.end});
  const DeviceSet devices = it->second->devices();
  executors_->SubmitRead(
      std::make_unique<ReadWindowTask>(it->second, window, changed_only, *journal_, pool_,
                                       devices_.size(), std::move(done)),
      devices);
}

absl::Status ShardNodeImpl::Begin(const NodeImage& image) {
  const MutexLock lock(install_mu_);
  EMBLA_RETURN_IF_ERROR(Install(image.plan, image.self, &image));
  sessions_.Close(image.closed);
  sessions_written_.Include(image.closed);
  for (const SessionGate::Seen& seen : image.sessions) {
    sessions_.Recall(seen.session, seen.seq, seen.time);
  }
  return absl::OkStatus();
}

void ShardNodeImpl::Write(const RowWindow& window, std::uint32_t replica_group, Buffer bytes,
                          std::function<void(absl::Status)> done) {
  const NodeTablesPtr tables = this->tables();
  const auto it = tables->tables.find(ToInt(window.table));
  if (it == tables->tables.end()) return done(absl::OkStatus());
  const std::shared_ptr<const NodeTable>& table = it->second;
  const bool fits = replica_group < table->shards.size() && window.rows.begin >= 0 &&
                    window.rows.begin < window.rows.end && window.rows.end <= table->spec.rows;
  absl::StatusOr<UnitChunk> rows = absl::InvalidArgumentError("it is of no rows of the table");
  if (fits) rows = DecodeWindow(*table, window, replica_group, bytes.bytes());
  if (!rows.ok()) {
    return done(absl::DataLossError(
        absl::StrCat("rows of table ", table->spec.name, ": ", rows.status().message())));
  }
  const DeviceSet devices = table->shards[replica_group]->devices();
  executors_->SubmitControl(
      std::make_unique<WriteWindowTask>(table, window, replica_group, *rows, std::move(bytes),
                                        devices_.size(), std::move(done)),
      devices);
}

void ShardNodeImpl::End() {
  for (const auto& [id, table] : tables()->tables) {
    for (const std::shared_ptr<TableShard>& shard : table->shards) {
      if (shard->evictions() != nullptr) shard->evictions()->Skip(false);
    }
  }
}

}  // namespace embla
