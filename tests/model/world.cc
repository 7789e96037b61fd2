#include "tests/model/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "tests/model/encode.h"

namespace embla::model {
namespace {

NodeId IdOf(int node) { return NodeId{static_cast<std::uint32_t>(node + 1)}; }

}  // namespace

UnitContext Model::ContextOf(int node) const {
  return {.self = IdOf(node),
          .chunks = config_.chunks,
          .credit_chunks = config_.credit,
          .behind_max = config_.behind_max,
          .guards = config_.guards};
}

World Model::Initial() const {
  UnitWorld unit;
  unit.record.owner = IdOf(0);
  for (int n = 0; n < config_.nodes; ++n) {
    NodeWorld node;
    if (n == 0) {
      node.logged = FreshUnit(config_.chunks);
      node.row_lsn.fill(Lsn{1});
    }
    node.state = Recovered(node.logged, {}, config_.chunks);
    node.state.is_covered = n == 0;
    node.logged = node.state.durable;
    node.synced = node.logged;
    node.synced_row_lsn = node.row_lsn;
    unit.nodes.push_back(std::move(node));
  }
  unit.coordinators.resize(config_.coordinators);
  return World(config_.units, unit);
}

void Model::Take(const Step& step, World& world) {
  UnitWorld& unit = world[step.unit];
  switch (step.kind) {
    case StepKind::kUpdate:
      return TakeUpdate(unit, step.node, step.arg);
    case StepKind::kAdmit:
      unit.nodes[step.node].admitted |= 1 << step.arg;
      return;
    case StepKind::kWritten:
      return TakeWritten(unit, step.node);
    case StepKind::kDeliver:
      return Deliver(unit, Message(messages_[step.arg]), step.node);
    case StepKind::kReserved:
    case StepKind::kRefused:
      StepAt(
          unit, step.node,
          ReservedEvent{unit.nodes[step.node].state.reserving, step.kind == StepKind::kReserved});
      return;
    case StepKind::kCoordinatorTick:
      return Coordinate(unit, step.node, CoordinatorTick{});
    case StepKind::kCoordinatorRestart:
      unit.coordinators[step.node] = CoordinatedUnit();
      return;
    case StepKind::kStart:
      return Coordinate(unit, step.node, StartMove{IdOf(step.arg)});
    case StepKind::kCancel: {
      const UnitRecord& record = unit.coordinators[step.node].record;
      if (HasNoWord(unit, record)) Coordinate(unit, step.node, StoredRecord{unit.record});
      return Coordinate(unit, step.node, CancelMove{HasNoWord(unit, record)});
    }
    case StepKind::kFreezeDeadline:
      StepAt(unit, step.node, FreezeDeadline{});
      return;
    case StepKind::kNodeTick:
      StepAt(unit, step.node, NodeTick{});
      return;
    case StepKind::kCrash:
      for (UnitWorld& each : world) Crash(each, step.node, Loss::kNothing);
      return;
    case StepKind::kCrashLosingStaged:
      for (UnitWorld& each : world) Crash(each, step.node, Loss::kStaged);
      return;
    case StepKind::kCrashLosingTail:
      for (UnitWorld& each : world) Crash(each, step.node, Loss::kTail);
      return;
    case StepKind::kSync:
      for (UnitWorld& each : world) Sync(each, step.node);
      return;
    case StepKind::kCopyDirectory: {
      NodeWorld& at = unit.nodes[step.node];
      at.copy = {at.synced, at.synced_rows, at.synced_row_lsn};
      ++unit.copies;
      return;
    }
    case StepKind::kRestoreDirectory:
      return RestoreDirectory(unit, step.node);
    case StepKind::kLetServe:
      unit.nodes[step.node].is_held = false;
      return;
    case StepKind::kLoseMessages:
      for (UnitWorld& each : world) each.messages.clear();
      return;
  }
}

UnitUpdate Model::PartOf(const UnitWorld& unit, int update) const {
  return {.session = SessionId{static_cast<std::uint64_t>(update % config_.sessions + 1)},
          .seq = UpdateSeq{static_cast<std::uint64_t>(update / config_.sessions + 1)},
          .first_incomplete = UpdateSeq{1},
          .epoch = UnitEpoch{0},
          .chunks = {static_cast<std::uint32_t>(update) % config_.chunks}};
}

void Model::TakeUpdate(UnitWorld& unit, int node, int update) {
  const UnitUpdate part = PartOf(unit, update);
  const std::optional<PartAnswer> answer = StepAt(unit, node, part);
  NodeWorld& at = unit.nodes[node];
  at.admitted &= ~(1 << update);
  if (answer->status == PartStatus::kApplied) {
    at.deciding.emplace_back(answer->lsn, update);
    if (has_tail()) {
      at.unsynced |= 1 << update;
    } else {
      Sync(unit, node);
    }
  }
  if (!at.deciding.empty() && !config_.has_slow_writes) return TakeWritten(unit, node);
  if (answer->status == PartStatus::kDuplicate && at.state.written >= answer->lsn) {
    if (at.is_tail_open) at.unsynced |= 1 << update;  // It repeats what may lie there.
    Acknowledge(unit, node, update);
  }
}

void Model::Acknowledge(UnitWorld& unit, int node, int update) {
  NodeWorld& at = unit.nodes[node];
  const auto bit = static_cast<std::uint8_t>(1 << update);
  const bool waits = (at.unsynced & bit) != 0 && !config_.acks_at_once;
  std::uint8_t& told = waits ? at.waiting : unit.acked;
  told |= bit;
}

void Model::Sync(UnitWorld& unit, int node) {
  NodeWorld& at = unit.nodes[node];
  NodeWorld written = at;
  WriteDecided(written);
  at.synced = at.logged;
  at.synced_rows = written.rows;
  at.synced_row_lsn = written.row_lsn;
  at.unsynced = 0;
  at.is_tail_open = false;
  unit.acked |= std::exchange(at.waiting, 0);
  if (at.state.is_releasing) {
    StepAt(unit, node, ReleaseSynced{at.state.durable.released->move});
  } else if (Owns(at.state) && !at.state.is_covered) {
    StepAt(unit, node, OwnSynced{});
  }
}

// Decided updates are in the log: a replay writes their rows.
void Model::WriteDecided(NodeWorld& at) {
  for (const auto& [lsn, update] : at.deciding) {
    ++at.rows[update];
    at.row_lsn[update] = lsn;
  }
  at.deciding.clear();
}

void Model::TakeWritten(UnitWorld& unit, int node) {
  NodeWorld& at = unit.nodes[node];
  const auto [lsn, update] = at.deciding.front();
  at.deciding.erase(at.deciding.begin());
  ++at.rows[update];
  at.row_lsn[update] = lsn;
  Acknowledge(unit, node, update);
  StepAt(unit, node, WrittenEvent{lsn});
}

void Model::Deliver(UnitWorld& unit, const Message& message, int node) {
  if (const auto* record = std::get_if<RecordFact>(&message.body)) {
    const UnitRecord& fact = record->record;
    StepAt(unit, node, RecordEvent{fact, IsSourceLost(unit, fact) && !HasReleased(unit, fact)});
  } else if (const auto* cancel = std::get_if<CancelFact>(&message.body)) {
    StepAt(unit, node, CancelEvent{cancel->record, cancel->source_is_lost});
  } else if (const auto* pull = std::get_if<PullFact>(&message.body)) {
    StepAt(unit, node, PullEvent{pull->from, pull->pull});
  } else if (const auto* chunk = std::get_if<ChunkFact>(&message.body)) {
    StepAt(unit, node, ChunkEvent{chunk->chunk}, &chunk->rows);
  } else if (const auto* cut = std::get_if<FinalCut>(&message.body)) {
    StepAt(unit, node, FinalEvent{*cut});
  } else if (const auto* holds = std::get_if<HoldsFact>(&message.body)) {
    StepAt(unit, node, HoldsEvent{holds->from, holds->holds});
  } else if (const auto* release = std::get_if<ReleaseFact>(&message.body)) {
    StepAt(unit, node, ReleaseEvent{release->from, release->release});
  } else if (const auto* covered = std::get_if<Covered>(&message.body)) {
    StepAt(unit, node, CoveredEvent{*covered});
  } else if (const auto* report = std::get_if<ReportFact>(&message.body)) {
    const UnitRecord& record = unit.coordinators[node].record;
    const bool is_of_next_life = report->from == record.source && IsSourceLost(unit, record);
    Coordinate(unit, node, ReportEvent{report->report, is_of_next_life});
  } else {
    Put(unit, std::get<PutFact>(message.body));
  }
}

void Model::Put(UnitWorld& unit, const PutFact& put) {
  if (put.expected != unit.record && config_.guards.compare_and_put) return;
  if (put.desired == unit.record) return;
  if (!IsNewer(put.desired, unit.record)) unit.broken = "the record went back in time";
  if (put.desired.committed != unit.record.committed) {
    unit.within = IsWithinNode(put.desired) ? put.desired.committed : MoveId{0};
  }
  unit.record = put.desired;
  Send(unit, {.to = 0, .body = RecordFact{unit.record}});
}

// Logged updates are replayed; an import may have lost any part that was not synced.
void Model::Crash(UnitWorld& unit, int node, Loss loss) {
  NodeWorld& at = unit.nodes[node];
  WriteDecided(at);
  at.admitted = 0;
  at.waiting = 0;
  if (loss == Loss::kTail) {
    at.logged = at.synced;
    at.rows = at.synced_rows;
    at.row_lsn = at.synced_row_lsn;
    if (has_tail()) {
      ++unit.tail_losses;
      BeginProcess(at.logged, config_.guards);
    }
  }
  const bool keeps_staged = loss == Loss::kNothing;
  ChunkVersions staged = keeps_staged ? at.state.staged : ChunkVersions();
  if (!keeps_staged) at.staged = {};
  at.state = Recovered(at.logged, std::move(staged), config_.chunks);
  at.state.is_covered = Owns(at.state);
  Sync(unit, node);  // An open log has synced its tail.
}

// The coordinator hears nothing of a process after it has heard of the next one, and has written
// down by then what it heard. The lsns of the lost life are given out once more.
void Model::RestoreDirectory(UnitWorld& unit, int node) {
  NodeWorld& at = unit.nodes[node];
  at.logged = at.copy->logged;
  at.rows = at.copy->rows;
  at.row_lsn = at.copy->row_lsn;
  at.deciding.clear();
  at.staged = {};
  at.admitted = 0;
  at.waiting = 0;
  at.changed_for = MoveId{0};
  at.state = Recovered(at.logged, {}, config_.chunks);
  at.state.is_covered = Owns(at.state);
  Sync(unit, node);
  at.is_held = true;
  at.lost_move = unit.record.move;
  at.first_heard = unit.record;
  ++unit.restores;
  std::erase_if(unit.messages, [&](std::uint16_t id) {
    const auto* const report = std::get_if<ReportFact>(&messages_[id].body);
    return std::holds_alternative<PutFact>(messages_[id].body) ||
           (report != nullptr && report->from == IdOf(node));
  });
  unit.acked &= WhatIsLeft(unit, node);
}

bool Model::IsSourceLost(const UnitWorld& unit, const UnitRecord& record) {
  if (record.source == NodeId{0}) return false;
  return record.move <= unit.nodes[IndexOf(record.source)].lost_move;
}

// The source has nothing of the unit, though it had before its directory was put back.
bool Model::HasNoWord(const UnitWorld& unit, const UnitRecord& record) {
  if (!IsSourceLost(unit, record)) return false;
  const UnitDurable& source = unit.nodes[IndexOf(record.source)].state.durable;
  return source.epoch == UnitEpoch{0} && !HasReleased(unit, record) && !source.import.has_value();
}

bool Model::HasReleased(const UnitWorld& unit, const UnitRecord& record) {
  const auto& released = unit.nodes[IndexOf(record.source)].state.durable.released;
  return released.has_value() && released->move == record.move;
}

bool Model::MayServe(const UnitWorld& unit, int node) const {
  return embla::MayServe(unit.record, IdOf(node), StandingOf(unit.nodes[node].state),
                         IsSourceLost(unit, unit.record), config_.guards);
}

std::optional<PartAnswer> Model::StepAt(UnitWorld& unit, int node, const NodeEvent& event,
                                        const Rows* chunk_rows) {
  NodeStep step = StepNode(ContextOf(node), std::move(unit.nodes[node].state), event);
  unit.nodes[node].state = std::move(step.state);
  bool is_synced = false;
  for (const NodeAction& action : step.actions) {
    Execute(unit, node, action, chunk_rows);
    const auto* log = std::get_if<LogAction>(&action);
    if (log == nullptr) continue;
    if (std::holds_alternative<AppliedUpdate>(log->record)) {  // Its rows are written later.
      unit.nodes[node].is_tail_open |= has_tail();
      continue;
    }
    const auto* release = std::get_if<ReleaseRecord>(&log->record);
    const bool is_told_later = std::holds_alternative<OwnRecord>(log->record) ||
                               (release != nullptr && release->released.move != kAside);
    (is_told_later ? unit.nodes[node].is_tail_open : is_synced) = true;
  }
  if (is_synced) Sync(unit, node);
  return step.answer;
}

void Model::LogAt(UnitWorld& unit, int node, const LogRecord& record) {
  UnitDurable& logged = unit.nodes[node].logged;
  if (std::holds_alternative<OwnRecord>(record) && !logged.import.has_value()) {
    unit.broken = "the log installs an import that it does not have";
    return;
  }
  Replay(record, logged);
}

void Model::Execute(UnitWorld& unit, int node, const NodeAction& action, const Rows* chunk_rows) {
  NodeWorld& at = unit.nodes[node];
  if (const auto* log = std::get_if<LogAction>(&action)) {
    LogAt(unit, node, log->record);
  } else if (const auto* pull = std::get_if<SendPull>(&action)) {
    Send(unit, {IndexOf(pull->to), PullFact{IdOf(node), pull->pull}});
  } else if (const auto* send = std::get_if<SendChunk>(&action)) {
    ChunkFact fact{send->chunk, {}};
    for (int k = 0; k < kUpdatesMax; ++k) {
      const bool is_in = k < config_.updates && k % config_.chunks == send->chunk.chunk &&
                         at.row_lsn[k] > send->chunk.base;
      fact.rows[k] = is_in ? at.rows[k] : kAbsent;
    }
    Send(unit, {IndexOf(send->to), fact});
  } else if (const auto* cut = std::get_if<SendFinal>(&action)) {
    Send(unit, {IndexOf(cut->to), cut->cut});
  } else if (const auto* report = std::get_if<SendReport>(&action)) {
    Send(unit, {0, ReportFact{IdOf(node), report->report}});
  } else if (const auto* holds = std::get_if<SendHolds>(&action)) {
    Send(unit, {IndexOf(holds->to), HoldsFact{IdOf(node), holds->holds}});
  } else if (const auto* release = std::get_if<SendRelease>(&action)) {
    Send(unit, {IndexOf(release->to), ReleaseFact{IdOf(node), release->release}});
  } else if (const auto* covered = std::get_if<SendCovered>(&action)) {
    Send(unit, {IndexOf(covered->to), covered->covered});
  } else if (std::holds_alternative<StageChunk>(action)) {
    for (int k = 0; k < kUpdatesMax; ++k) {
      if ((*chunk_rows)[k] != kAbsent) at.staged[k] = (*chunk_rows)[k];
    }
  } else if (std::holds_alternative<ResetStaged>(action)) {
    at.staged = {};
  } else if (std::holds_alternative<ReserveImport>(action)) {
    if (!config_.has_refusals) StepAt(unit, node, ReservedEvent{at.state.reserving, true});
  } else if (std::holds_alternative<InstallStaged>(action)) {
    at.rows = at.staged;
    at.staged = {};
    at.row_lsn.fill(at.state.durable.lsn);
    at.changed_for = MoveId{0};
  } else if (const auto* relocate = std::get_if<RelocateRows>(&action)) {
    at.changed_for = relocate->move;
  } else if (std::holds_alternative<DiscardStaged>(action)) {
    at.staged = {};
  } else if (std::holds_alternative<TrimRows>(action)) {
    at.rows = {};
    at.row_lsn = {};
    at.changed_for = MoveId{0};
  }
}

void Model::Coordinate(UnitWorld& unit, int coordinator, const CoordinatorEvent& event) {
  CoordinatorStep step = StepCoordinator(unit.coordinators[coordinator], event, config_.guards);
  unit.coordinators[coordinator] = step.state;
  for (const CoordinatorAction& action : step.actions) {
    if (const auto* put = std::get_if<PutToStore>(&action)) {
      Send(unit, {0, PutFact{put->expected, put->desired}});
    } else if (const auto* record = std::get_if<TellRecord>(&action)) {
      Send(unit, {0, RecordFact{record->record}});
    } else if (const auto* cancel = std::get_if<TellCancel>(&action)) {
      Send(unit, {IndexOf(cancel->to), CancelFact{cancel->record, cancel->source_is_lost}});
    } else {
      Coordinate(unit, coordinator, StoredRecord{unit.record});
    }
  }
}

void Model::Send(UnitWorld& unit, Message message) {
  const std::string key = Encode(message);
  const auto [it, is_new] =
      message_ids_.try_emplace(key, static_cast<std::uint16_t>(messages_.size()));
  if (is_new) {
    EMBLA_CHECK(messages_.size() < 0xffff);
    messages_.push_back(std::move(message));
  }
  auto& ids = unit.messages;
  const auto at = std::lower_bound(ids.begin(), ids.end(), it->second);
  if (at == ids.end() || *at != it->second) ids.insert(at, it->second);
}

}  // namespace embla::model
