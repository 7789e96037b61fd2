// How a move gets from its order to the plan.
//
// Idea. The protocol of one unit is StepCoordinator (server/migration/coordinator_step.h), which is
// pure and model-checked. A reshard moves tens of thousands of units, and a store that syncs once
// per step of each would take hours. The driver therefore runs one StepCoordinator per open unit,
// gathers what they want to write into few commits of the store (puts_, handed_over_), and gathers
// what they want to tell into one message per node (orders_). It adds no rule to the protocol.
//
// A unit's way, with the field that shows it:
//
//   Open() -> copying          record kOpen in the store, both ends told
//          -> handed over      an end's report; the record's change is in handed_over_
//          -> published        Flush() wrote record and tiling; both ends told
//   Until a node says that it is handed over: aborted, by the word of the source, which is asked
//   for it (CancelAll, no progress for stall_after, or an end that refuses).
//
// Invariants.
// - Nobody waits for the driver but the job: nodes hand units over by themselves, and trainers
//   follow their hints until a plan comes. So plans may be few.
// - The driver may forget everything: nodes report again, and whatever the driver tells is repeated
//   every repeat_after until the record changes. A restarted coordinator opens the same units and
//   goes on.
// - A record that changes its owner is written in one commit of the store with the new tiling of
//   its table, so that plan and records never disagree.
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
// Records of a commit with a plan, which costs much more than they do.
constexpr std::size_t kPublishedMax = 4096;

bool IsHandedOver(const PutToStore& put) {
  return put.desired.phase == MovePhase::kNone && put.expected.phase == MovePhase::kOpen;
}

// The first units of `puts`, at most `units_max` and all of one table, taken out of it.
std::map<UnitId, PutToStore> TakeBatch(std::map<UnitId, PutToStore>& puts, std::size_t units_max) {
  std::map<UnitId, PutToStore> batch;
  const TableId table = puts.begin()->first.table;
  while (!puts.empty() && batch.size() < units_max && puts.begin()->first.table == table) {
    batch.insert(puts.extract(puts.begin()));
  }
  return batch;
}

}  // namespace

UnitDriver::UnitDriver(StateStore& store, MoveCluster& cluster, const UnitDriverOptions& options)
    : store_(store), cluster_(cluster), options_(options) {}

absl::Status UnitDriver::Open(const UnitId& unit, const Way& way, absl::Time now) {
  now_ = now;
  EMBLA_ASSIGN_OR_RETURN(const StoredUnit stored, ReadUnit(store_, *cluster_.plan(), unit));
  OpenUnit& open = open_[unit];
  open.way = way;
  open.revision = stored.revision;
  open.state.record = stored.record;
  open.progressed = now;
  open.told = now;
  if (open.IsOpen()) {
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
      Tell(tell->to, OrderFor(unit, {tell->record, open.revision}, open.way));
    } else if (const auto* cancel = std::get_if<TellCancel>(&action)) {
      UnitOrder order = OrderFor(unit, {cancel->record, open.revision}, open.way);
      order.cancels = true;
      order.source_is_lost = cancel->source_is_lost;
      Tell(cancel->to, std::move(order));
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
  if (!IsHandedOver(put)) {
    handed_over_.erase(unit);
    puts_.insert_or_assign(unit, put);
  } else if (!puts_.contains(unit)) {
    if (handed_over_.empty()) handed_over_since_ = now;
    handed_over_.insert_or_assign(unit, put);
  }
}

// A source that has lost a part of its log cannot say it again: it neither knows that it has let go
// of the unit, nor, if that had come to it since, that it ever had it.
UnitDriver::Word UnitDriver::WordOfSource(const UnitId& unit, const StoredUnit& stored) const {
  const UnitRecord& record = stored.record;
  if (cluster_.IsForgotten(record.source)) return Word::kNone;
  if (!cluster_.IsLost(record.source, stored.revision)) return Word::kItsOwn;
  const UnitStanding standing = cluster_.StandingOf(record.source, unit);
  using State = UnitStanding::State;
  if (standing.state == State::kHandedOver && standing.last_move == record.move) {
    return Word::kReleased;
  }
  const bool may_release = standing.state == State::kOwned || standing.state == State::kComing;
  return may_release ? Word::kUnknowing : Word::kNone;
}

UnitOrder UnitDriver::OrderFor(const UnitId& unit, const StoredUnit& stored, const Way& way) const {
  const Word word = WordOfSource(unit, stored);
  return {.unit = unit,
          .record = stored.record,
          .source_is_lost = word == Word::kUnknowing || word == Word::kNone,
          .target_device = way.to.index,
          .run = way.run,
          .plan = cluster_.plan()->version()};
}

void UnitDriver::Tell(NodeId node, UnitOrder order) {
  if (node == NodeId{0}) return;  // A source that nobody is: the unit begins anew.
  orders_[node].push_back(std::move(order));
}

// A lost source has no word to give. A target that is lost, too, takes nothing over any more.
void UnitDriver::Cancel(const UnitId& unit, OpenUnit& open, const std::string& reason) {
  if (!open.IsOpen() || handed_over_.contains(unit)) return;
  open.reason = reason;
  const UnitRecord& record = open.state.record;
  const auto has_no_word = [&] {
    return WordOfSource(unit, {record, open.revision}) == Word::kNone;
  };
  // Nobody would take the unit over any more, if the source had handed it over after all.
  if (has_no_word()) Read(unit, open);
  if (!open.IsOpen()) return;
  const bool source_is_lost = has_no_word();
  if (source_is_lost && cluster_.IsForgotten(record.target)) {
    return Step(unit, open, ReportEvent{{ReportKind::kAborted, record.move}});
  }
  Step(unit, open, CancelMove{source_is_lost});
}

void UnitDriver::CancelAll(const std::string& reason) {
  std::erase_if(open_, [this](const auto& entry) {
    if (entry.second.move != MoveId{0}) return false;
    puts_.erase(entry.first);
    return true;
  });
  for (auto& [unit, open] : open_) Cancel(unit, open, reason);
}

bool UnitDriver::IsSentBy(NodeId node, const UnitReport& report, const StoredUnit& stored) const {
  const UnitRecord& record = stored.record;
  switch (report.kind) {
    case UnitReport::Kind::kHandedOver:
    case UnitReport::Kind::kRefused:
      return node == record.target || node == record.source;
    case UnitReport::Kind::kReady:
      return node == record.target;
    case UnitReport::Kind::kAborted:
      return node == record.source ||
             (node == record.target && (cluster_.IsForgotten(record.source) ||
                                        cluster_.IsLost(record.source, stored.revision)));
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
  if (is_of_open && IsSentBy(node, report, {entry->second.state.record, entry->second.revision})) {
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
    case UnitReport::Kind::kHandedOver:
      open.progressed = now;
      return fact(ReportKind::kHandedOver);
    case UnitReport::Kind::kReady:
      return fact(ReportKind::kReady);
    case UnitReport::Kind::kRefused:
      return Cancel(unit, open,
                    report.message.empty() ? absl::StrCat("node ", ToInt(node), " refused it")
                                           : report.message);
    case UnitReport::Kind::kAborted:
      if (open.reason.empty()) open.reason = "the source gave it up";
      return Step(unit, open,
                  ReportEvent{.report = {ReportKind::kAborted, report.move},
                              .is_of_next_life = node == open.state.record.source &&
                                                 cluster_.IsLost(node, open.revision)});
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
  Tell(node, OrderFor(unit, *stored, way));
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
    if (handed_over_.contains(unit)) continue;
    if (!both_live) open.progressed = now;  // A dead node is waited for.
    const NodeId source = open.state.record.source;
    const bool is_lost = cluster_.IsForgotten(source) || cluster_.IsLost(source, open.revision);
    if (is_lost && now - open.told >= options_.repeat_after) {
      Cancel(unit, open, "its source has lost what it knew of it");
    }
    if (now - open.progressed > options_.stall_after) {
      Cancel(unit, open,
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

// A job that has taken t so far waits for another tenth of that, so it makes some ten plans, and
// seven more each time that its duration doubles. A source that is down gives no hints.
void UnitDriver::Flush(const std::string& cause, absl::Time since, bool more_come, absl::Time now) {
  now_ = now;
  while (!puts_.empty()) WritePuts(TakeBatch(puts_, kPutsMax));
  if (handed_over_.empty()) return;
  const absl::Duration linger =
      std::max(options_.publish_linger, options_.publish_share * (now - since));
  const bool is_due = (copying_count() == 0 && !more_come) || now - handed_over_since_ >= linger ||
                      std::ranges::any_of(handed_over_, [this](const auto& entry) {
                        const NodeId source = entry.second.desired.source;
                        return source != NodeId{0} && !cluster_.IsLive(source);
                      });
  if (!is_due) return;
  Puts puts = std::exchange(handed_over_, {});
  while (!puts.empty()) WriteHandedOver(TakeBatch(puts, kPublishedMax), cause, now);
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

void UnitDriver::WriteHandedOver(const Puts& puts, const std::string& cause, absl::Time now) {
  const TableId id = puts.begin()->first.table;
  const TablePlan* const table = cluster_.plan()->FindTable(id);
  if (table == nullptr) return;
  PlanEdit edit{
      .tables = {*table},
      .cause = absl::StrCat(puts.size(), " units of table ", table->spec.name, " moved by ", cause),
      .at = now};
  std::vector<MoveRun> runs;
  for (const auto& [unit, put] : puts) {
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
  CrashPoint("units.publish");
  const absl::StatusOr<Revision> written = cluster_.PutPlan(std::move(edit));
  CrashPoint("units.publish_done");
  AfterWrite(puts, written);
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
    // One that was opened before it was the job's may have gone elsewhere.
    const bool is_over =
        record.phase != MovePhase::kOpen && record.move == open.move && open.move != MoveId{0};
    if (!moved && !is_over) {
      ++entry;
      continue;
    }
    ended.push_back({entry->first, moved, open.reason});
    puts_.erase(entry->first);
    handed_over_.erase(entry->first);
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

JobWait UnitDriver::WaitsFor() const {
  for (const auto& [unit, open] : open_) {
    for (const NodeId id : {open.way.from.node, open.way.to.node}) {
      const NodeSpec* const node = cluster_.plan()->FindNode(id);
      if (node == nullptr || cluster_.IsForgotten(id)) continue;
      if (!cluster_.IsLive(id)) {
        return {.what = absl::StrCat("waits for node ", node->name, " at ", node->address,
                                     ", which is down"),
                .node = node->name};
      }
    }
  }
  return {};
}

}  // namespace embla
