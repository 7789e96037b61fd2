// How a move gets from its order to its commit.
//
// Idea. The protocol of one unit is StepCoordinator (server/migration/coordinator_step.h), which is
// pure and model-checked. A reshard moves tens of thousands of units, and a store that syncs once
// per step of each would take hours. The driver therefore runs one StepCoordinator per open unit,
// gathers what they want to write into few commits of the store (puts_, commits_), and gathers what
// they want to tell into one message per node (orders_). It adds no rule to the protocol.
//
// A unit's way, with the field that shows it:
//
//   Open() -> copying          record kOpen in the store, both ends told
//          -> caught up        OpenUnit::caught_up, from the source's report
//          -> frozen           OpenUnit::is_frozen: FreezeBatch() told the source to make the cut
//          -> sealed           the target's report; the commit is in commits_
//          -> committed        Flush() wrote record and tiling; both ends told until they settle
//   Until the commit, every state also leads to: aborted (CancelAll, no progress for stall_after,
//   or an end that refuses), with the owner unchanged.
//
// Invariants.
// - The unit's record in the store is the only arbiter. The driver may forget everything: both ends
//   report again, and whatever the driver tells is repeated every repeat_after until the record
//   changes. A restarted coordinator opens the same units and goes on.
// - A record that commits is written in one commit of the store with the new tiling of its table,
//   so that plan and records never disagree. Units freeze in batches (freeze_batches.h), a batch is
//   one commit, and a sealed unit waits at most commit_linger for the others of its batch.
// - Every put names the revision that it replaces. After ABORTED the record is read again and given
//   to StepCoordinator; after any other error nothing is concluded, since both ends report again.
// - A report counts only from the end that may make it (IsSentBy).
//
// Bounds: kPutsMax records per commit; MoveJobs bounds the units that are open.
//
// Covered by move_jobs_test.cc and coordinator_model_test.cc (restarts at any step), tests/model
// (the protocol, and the removal of each guard), tests/fault/chaos.sh (real processes killed).
#include "server/coordinator/unit_driver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_records.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

// Records of one commit: more would hold up everybody else's.
constexpr std::size_t kPutsMax = 60;

bool IsCommit(const PutToStore& put) {
  return put.desired.phase == MovePhase::kCommitted && put.expected.phase == MovePhase::kOpen;
}

// The first units of `puts`, at most kPutsMax and all of one table, taken out of it.
std::map<UnitId, PutToStore> TakeBatch(std::map<UnitId, PutToStore>& puts) {
  std::map<UnitId, PutToStore> batch;
  const TableId table = puts.begin()->first.table;
  while (!puts.empty() && batch.size() < kPutsMax && puts.begin()->first.table == table) {
    batch.insert(puts.extract(puts.begin()));
  }
  return batch;
}

}  // namespace

UnitDriver::UnitDriver(StateStore& store, MoveCluster& cluster, const UnitDriverOptions& options)
    : store_(store), cluster_(cluster), options_(options), batches_(options.batches) {}

absl::Status UnitDriver::Open(const UnitId& unit, const Way& way, absl::Time now) {
  now_ = now;
  EMBLA_ASSIGN_OR_RETURN(const StoredUnit stored, ReadUnit(store_, *cluster_.plan(), unit));
  OpenUnit& open = open_[unit];
  open.way = way;
  open.revision = stored.revision;
  open.state.record = stored.record;
  open.progressed = now;
  open.told = now;
  const MovePhase phase = stored.record.phase;
  if (phase == MovePhase::kOpen || phase == MovePhase::kCommitted) {
    open.move = stored.record.move;
    Step(unit, open, CoordinatorTick{});
  } else {
    Step(unit, open, StartMove{way.to.node, way.is_anew});
  }
  return absl::OkStatus();
}

void UnitDriver::Step(const UnitId& unit, OpenUnit& open, const CoordinatorEvent& event) {
  CoordinatorStep step = StepCoordinator(open.state, event);
  open.state = step.state;
  const UnitRecord& record = open.state.record;
  if (record.phase == MovePhase::kOpen && record.target == open.way.to.node)
    open.move = record.move;
  for (const CoordinatorAction& action : step.actions) {
    if (const auto* put = std::get_if<PutToStore>(&action)) {
      AddPut(unit, *put, now_);
    } else if (const auto* tell = std::get_if<TellRecord>(&action)) {
      Tell(tell->to, unit, tell->record, open.way, false);
    } else if (const auto* freeze = std::get_if<TellFreeze>(&action)) {
      open.is_frozen = true;
      Tell(freeze->to, unit, freeze->record, open.way, true);
    } else {
      Read(unit, open);
    }
  }
}

void UnitDriver::Read(const UnitId& unit, OpenUnit& open) {
  const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
  if (!stored.ok()) {
    LogError("coordinator", "cannot read the record of a unit: ", Message(stored.status()));
    return;
  }
  open.revision = stored->revision;
  Step(unit, open, StoredRecord{stored->record});
}

void UnitDriver::AddPut(const UnitId& unit, const PutToStore& put, absl::Time now) {
  if (!IsCommit(put)) {
    commits_.erase(unit);
    puts_.insert_or_assign(unit, put);
  } else if (!puts_.contains(unit)) {
    if (commits_.empty()) commits_since_ = now;
    commits_.insert_or_assign(unit, put);
  }
}

void UnitDriver::Tell(NodeId node, const UnitId& unit, const UnitRecord& record, const Way& way,
                      bool freeze) {
  if (node == NodeId{0}) return;  // A source that nobody is: the unit begins anew.
  const auto address = [this](NodeId id) {
    const NodeSpec* const spec = cluster_.plan()->FindNode(id);
    return spec == nullptr ? std::string() : spec->address;
  };
  orders_[node].push_back({.unit = unit,
                           .record = record,
                           .freeze = freeze,
                           .target_device = way.to.index,
                           .run = way.run,
                           .source_address = address(record.source),
                           .target_address = address(record.target)});
}

void UnitDriver::Abort(const UnitId& unit, OpenUnit& open, const std::string& reason) {
  if (!open.IsOpen()) return;
  open.reason = reason;
  Step(unit, open, CancelMove{});
}

void UnitDriver::CancelAll(const std::string& reason) {
  std::erase_if(open_, [this](const auto& entry) {
    if (entry.second.move != MoveId{0}) return false;
    puts_.erase(entry.first);
    return true;
  });
  for (auto& [unit, open] : open_) Abort(unit, open, reason);
}

bool UnitDriver::IsSentBy(NodeId node, const UnitReport& report, const UnitRecord& record) const {
  switch (report.kind) {
    case UnitReport::Kind::kCaughtUp:
    case UnitReport::Kind::kAbort:
      return node == record.source;
    case UnitReport::Kind::kSealed:
      return node == record.target;
    case UnitReport::Kind::kRefused:
      return node == record.target || node == record.source;
    case UnitReport::Kind::kCovered:
      return node == record.owner;
    case UnitReport::Kind::kReadRecord:
    case UnitReport::Kind::kProgress:
    case UnitReport::Kind::kSettled:
      return true;
  }
  return false;
}

void UnitDriver::OnReport(NodeId node, const UnitReport& report, absl::Time now) {
  now_ = now;
  CrashPoint("units.report");
  if (report.kind == UnitReport::Kind::kReadRecord) return AnswerReader(node, report.unit);
  const auto entry = open_.find(report.unit);
  const bool is_of_open = entry != open_.end() && report.move == entry->second.state.record.move;
  if (is_of_open && IsSentBy(node, report, entry->second.state.record)) {
    Carry(node, entry->second, report, now);
  } else if (report.kind != UnitReport::Kind::kProgress &&
             report.kind != UnitReport::Kind::kSettled) {
    TellEnds(report.unit);
  }
}

void UnitDriver::Carry(NodeId node, OpenUnit& open, const UnitReport& report, absl::Time now) {
  const UnitId& unit = report.unit;
  const auto fact = [&](ReportKind kind) {
    Step(unit, open, ReportEvent{{.kind = kind, .move = report.move}});
  };
  switch (report.kind) {
    case UnitReport::Kind::kCaughtUp:
      open.caught_up = std::min(open.caught_up, now);
      // Else it waits for its batch. One that is said to be frozen may not have heard of it.
      if (open.is_frozen) fact(ReportKind::kCaughtUp);
      return;
    case UnitReport::Kind::kSealed:
      return fact(ReportKind::kSealed);
    case UnitReport::Kind::kCovered:
      return fact(ReportKind::kCovered);
    case UnitReport::Kind::kRefused:
      open.reason = report.message.empty() ? absl::StrCat("node ", ToInt(node), " refused it")
                                           : report.message;
      return fact(ReportKind::kRefused);
    case UnitReport::Kind::kAbort:
      return Abort(unit, open, report.message.empty() ? "the source gave it up" : report.message);
    case UnitReport::Kind::kProgress:
      if (report.bytes_sent <= open.bytes_sent) return;
      open.bytes_sent = report.bytes_sent;
      open.progressed = now;
      return;
    case UnitReport::Kind::kReadRecord:
    case UnitReport::Kind::kSettled:
      return;
  }
}

void UnitDriver::AnswerReader(NodeId node, const UnitId& unit) {
  const auto entry = open_.find(unit);
  const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
  if (!stored.ok()) return;  // The table was dropped.
  const Way way = entry == open_.end() ? Way{} : entry->second.way;
  Tell(node, unit, stored->record, way, false);
}

// Repeats the end of a move to the nodes that still work on it and have missed the end.
void UnitDriver::TellEnds(const UnitId& unit) {
  const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
  if (!stored.ok() || stored->record.move == MoveId{0}) return;
  AnswerReader(stored->record.source, unit);
  AnswerReader(stored->record.target, unit);
}

void UnitDriver::Tick(absl::Time now) {
  now_ = now;
  for (auto& [unit, open] : open_) {
    const bool both_live = (open.way.is_anew || cluster_.IsLive(open.way.from.node)) &&
                           cluster_.IsLive(open.way.to.node);
    // A forgotten node never says that it has what it took over, and nobody waits for its rows.
    if (open.state.record.phase == MovePhase::kCommitted &&
        cluster_.IsForgotten(open.way.to.node)) {
      Step(unit, open, ReportEvent{{.kind = ReportKind::kCovered, .move = open.state.record.move}});
    }
    // A dead node is waited for, and what waits for its batch need not get on.
    if (!both_live || open.WaitsForBatch()) open.progressed = now;
    if (now - open.progressed > options_.stall_after) {
      Abort(unit, open,
            absl::StrCat("no progress for ", absl::FormatDuration(options_.stall_after)));
    }
    if (now - open.told < options_.repeat_after) continue;
    open.told = now;
    if (open.move == MoveId{0}) {
      Step(unit, open, StartMove{open.way.to.node, open.way.is_anew});
    } else {
      Step(unit, open, CoordinatorTick{});
    }
  }
}

UnitDriver::OpenUnit& UnitDriver::At(const UnitId& unit) {
  const auto found = open_.find(unit);
  EMBLA_CHECK(found != open_.end());  // A unit stays open as long as something of it is to be put.
  return found->second;
}

void UnitDriver::Flush(const std::string& cause, absl::Time now) {
  now_ = now;
  while (!puts_.empty()) WritePuts(TakeBatch(puts_));
  const bool is_due =
      commits_.size() >= closing_count() || now - commits_since_ >= options_.commit_linger;
  if (!is_due) return;
  Puts commits = std::exchange(commits_, {});
  while (!commits.empty()) WriteCommits(TakeBatch(commits), cause, now);
}

void UnitDriver::FreezeBatch(absl::Time now) {
  now_ = now;
  std::vector<FreezeBatches::Waiting> waiting;
  FreezeBatches::Frozen frozen;
  for (const auto& [unit, open] : open_) {
    if (open.WaitsForBatch()) {
      waiting.push_back({.unit = unit, .since = open.caught_up, .bytes = open.way.bytes});
    } else if (open.IsOpen() && open.is_frozen) {
      ++frozen.units;
      frozen.bytes += batches_.LeftBytes(open.way.bytes);
    }
  }
  const std::vector<UnitId> batch = batches_.Next(waiting, frozen, copying_count() > 0, now);
  for (const UnitId& unit : batch) {
    OpenUnit& open = At(unit);
    open.progressed = now;
    const MoveId move = open.state.record.move;
    Step(unit, open, ReportEvent{{.kind = ReportKind::kCaughtUp, .move = move}});
  }
  has_waiting_ = batch.size() < waiting.size();
}

void UnitDriver::WritePuts(const Puts& puts) {
  std::vector<StateCompare> compares;
  std::vector<StateWrite> writes;
  for (const auto& [unit, put] : puts) {
    compares.push_back({KeyOf(unit), At(unit).revision});
    writes.push_back({KeyOf(unit), UnitRecordToJson(put.desired)});
  }
  CrashPoint("units.put");
  const absl::StatusOr<Revision> written = store_.Commit(compares, writes);
  CrashPoint("units.put_done");
  AfterWrite(puts, written);
}

void UnitDriver::WriteCommits(const Puts& commits, const std::string& cause, absl::Time now) {
  const TableId id = commits.begin()->first.table;
  const TablePlan* const table = cluster_.plan()->FindTable(id);
  if (table == nullptr) return;
  PlanEdit edit{.tables = {*table},
                .cause = absl::StrCat(commits.size(), " units of table ", table->spec.name,
                                      " moved by ", cause),
                .at = now};
  std::vector<MoveRun> runs;
  for (const auto& [unit, put] : commits) {
    const OpenUnit& open = At(unit);
    edit.compares.push_back({KeyOf(unit), open.revision});
    edit.writes.push_back({KeyOf(unit), UnitRecordToJson(put.desired)});
    runs.push_back({.table = id,
                    .column_granule = unit.column_granule,
                    .granule_begin = unit.row_granule,
                    .granule_end = unit.row_granule + 1,
                    .from = open.way.from,
                    .to = open.way.to});
  }
  SetTiling(*cluster_.plan(), TilingAfter(*table, runs), edit.tables.front());
  CrashPoint("units.commit");
  const absl::StatusOr<Revision> written = cluster_.PutPlan(std::move(edit));
  CrashPoint("units.commit_done");
  AfterWrite(commits, written);
}

void UnitDriver::AfterWrite(const Puts& puts, const absl::StatusOr<Revision>& written) {
  if (!written.ok()) {  // Nodes repeat the reports that led to the puts.
    LogWarning("coordinator",
               "cannot write records of units, tried again: ", Message(written.status()));
  }
  for (const auto& [unit, put] : puts) {
    OpenUnit& open = At(unit);
    if (written.ok()) {
      open.revision = *written;
      open.progressed = now_;
      open.told = now_;
      Step(unit, open, StoredRecord{put.desired});
    } else if (absl::IsAborted(written.status())) {
      Read(unit, open);
    }
  }
}

std::vector<UnitDriver::Ended> UnitDriver::TakeEnded() {
  std::vector<Ended> ended;
  for (auto entry = open_.begin(); entry != open_.end();) {
    const OpenUnit& open = entry->second;
    const UnitRecord& record = open.state.record;
    const bool moved =
        record.phase == MovePhase::kNone && IsOn(*cluster_.plan(), entry->first, open.way.to);
    const bool aborted =
        record.phase == MovePhase::kAborted && record.move == open.move && open.move != MoveId{0};
    if (!moved && !aborted) {
      ++entry;
      continue;
    }
    ended.push_back({entry->first, moved, open.reason});
    puts_.erase(entry->first);
    commits_.erase(entry->first);
    entry = open_.erase(entry);
  }
  return ended;
}

std::map<NodeId, std::vector<UnitOrder>> UnitDriver::TakeOrders(std::uint64_t bytes_per_second) {
  if (!orders_.empty()) CrashPoint("units.orders");
  for (auto& [node, orders] : orders_) {
    for (UnitOrder& order : orders) order.bytes_per_second = bytes_per_second;
  }
  return std::exchange(orders_, {});
}

std::size_t UnitDriver::copying_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(open_, [this](const auto& entry) {
    const auto& [unit, open] = entry;
    return open.state.record.phase != MovePhase::kCommitted && !commits_.contains(unit) &&
           !open.HasCaughtUp();
  }));
}

std::uint64_t UnitDriver::frozen_count() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      open_, [](const auto& entry) { return entry.second.is_frozen && entry.second.IsOpen(); }));
}

// A move within a node, or from nobody, has nothing to copy first.
std::uint64_t UnitDriver::closing_count() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(open_, [](const auto& entry) {
    const UnitRecord& record = entry.second.state.record;
    return record.phase == MovePhase::kOpen &&
           (entry.second.is_frozen || IsWithinNode(record) || IsAnew(record));
  }));
}

JobWait UnitDriver::WaitsFor(absl::Time now) const {
  for (const auto& [unit, open] : open_) {
    for (const NodeId id : {open.way.from.node, open.way.to.node}) {
      const NodeSpec* const node = cluster_.plan()->FindNode(id);
      if (node == nullptr || cluster_.IsForgotten(id)) continue;
      if (!cluster_.IsLive(id)) {
        return {.what = absl::StrCat("waits for node ", node->name, " at ", node->address,
                                     ", which is down"),
                .node = node->name};
      }
      const bool covers =
          open.state.record.phase == MovePhase::kCommitted && id == open.way.to.node;
      if (covers && now - open.progressed > options_.stall_after) {
        return {.what = absl::StrCat("waits for node ", node->name,
                                     " to say that what it took over is covered"),
                .node = node->name};
      }
    }
  }
  return {};
}

}  // namespace embla
