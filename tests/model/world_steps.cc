// The steps that a world allows, and their names in a trace.
#include "absl/strings/str_cat.h"
#include "tests/model/encode.h"
#include "tests/model/world.h"

namespace embla::model {
namespace {

const char* NameOf(StepKind kind) {
  switch (kind) {
    case StepKind::kUpdate:
      return "update arrives and is decided";
    case StepKind::kAdmit:
      return "update passes the first check";
    case StepKind::kWritten:
      return "rows are written, update is acknowledged";
    case StepKind::kDeliver:
      return "receives";
    case StepKind::kReserved:
      return "reserves memory";
    case StepKind::kRefused:
      return "has no memory";
    case StepKind::kCoordinatorTick:
      return "coordinator reads the store and repeats facts";
    case StepKind::kCoordinatorRestart:
      return "coordinator restarts";
    case StepKind::kStart:
      return "coordinator starts a move";
    case StepKind::kCancel:
      return "coordinator cancels";
    case StepKind::kFreezeDeadline:
      return "freeze deadline";
    case StepKind::kNodeTick:
      return "tick";
    case StepKind::kCrash:
      return "dies and restarts";
    case StepKind::kCrashLosingStaged:
      return "dies, losing what was not synced, and restarts";
    case StepKind::kCrashLosingTail:
      return "dies, losing the log's records that were not synced, and restarts";
    case StepKind::kSync:
      return "syncs its log";
    case StepKind::kCopyDirectory:
      return "its directory is copied";
    case StepKind::kRestoreDirectory:
      return "dies, and its directory is put back as it was copied";
    case StepKind::kLetServe:
      return "is let serve";
    case StepKind::kLoseMessages:
      return "the network loses everything";
  }
  return "unknown";
}

// The coordinator speaks to a process by a link of its own, peers only to one that serves.
bool MayHear(const NodeWorld& node, const Message& message) {
  if (const auto* record = std::get_if<RecordFact>(&message.body)) {
    return !IsNewer(node.first_heard, record->record);
  }
  if (const auto* cancel = std::get_if<CancelFact>(&message.body)) {
    return !IsNewer(node.first_heard, cancel->record);
  }
  return !node.is_held;
}

}  // namespace

std::string Model::Describe(const Step& step) const {
  std::string words = config_.units > 1 ? absl::StrCat("unit ", step.unit, ": ") : "";
  const bool is_global = step.kind == StepKind::kLoseMessages;
  if (!is_global) absl::StrAppend(&words, step.node + 1, ": ");
  absl::StrAppend(&words, NameOf(step.kind));
  switch (step.kind) {
    case StepKind::kDeliver:
      absl::StrAppend(&words, " ", ToString(messages_[step.arg]));
      break;
    case StepKind::kUpdate:
    case StepKind::kAdmit:
      absl::StrAppend(&words, " (update ", step.arg, ")");
      break;
    case StepKind::kStart:
      absl::StrAppend(&words, " to ", step.arg + 1);
      break;
    default:
      break;
  }
  return words;
}

std::vector<Step> Model::EnabledSteps(const World& world) const {
  std::vector<Step> steps;
  bool has_messages = false;
  for (int u = 0; u < static_cast<int>(world.size()); ++u) {
    AddSteps(world[u], u, steps);
    has_messages = has_messages || !world[u].messages.empty();
  }
  for (int n = 0; n < config_.nodes; ++n) {
    bool is_open = false;
    for (const UnitWorld& unit : world) is_open |= unit.nodes[n].is_tail_open;
    if (!is_open) continue;
    steps.push_back({.kind = StepKind::kSync, .node = n});
    const bool may_lose =
        has_tail() ? world[0].tail_losses < config_.tail_losses : config_.has_crashes;
    if (may_lose) steps.push_back({.kind = StepKind::kCrashLosingTail, .node = n});
  }
  for (int n = 0; n < config_.nodes && config_.restores > 0; ++n) {
    const UnitWorld& unit = world[0];
    const NodeWorld& at = unit.nodes[n];
    if (unit.copies < config_.restores && !(config_.has_no_returns && n > 0))
      steps.push_back({.kind = StepKind::kCopyDirectory, .node = n});
    if (at.copy.has_value() && unit.restores < config_.restores)
      steps.push_back({.kind = StepKind::kRestoreDirectory, .node = n});
    if (at.is_held && MayServe(unit, n)) steps.push_back({.kind = StepKind::kLetServe, .node = n});
  }
  for (int n = 0; n < config_.nodes && config_.has_crashes; ++n) {
    steps.push_back({.kind = StepKind::kCrash, .node = n});
    if (!config_.has_partial_loss) continue;
    steps.push_back({.kind = StepKind::kCrashLosingStaged, .node = n});
  }
  if (config_.is_lossy && has_messages) steps.push_back({.kind = StepKind::kLoseMessages});
  return steps;
}

void Model::AddSteps(const UnitWorld& unit, int index, std::vector<Step>& steps) const {
  for (int n = 0; n < config_.nodes; ++n) AddNodeSteps(unit, index, n, steps);
  AddDeliveries(unit, index, steps);
  if (IsCoordinatorDead(unit)) return;
  for (int c = 0; c < config_.coordinators; ++c) {
    const UnitRecord& record = unit.coordinators[c].record;
    steps.push_back({StepKind::kCoordinatorTick, index, c, 0});
    if (config_.has_crashes) steps.push_back({StepKind::kCoordinatorRestart, index, c, 0});
    if (config_.has_deadlines || IsSourceLost(unit, record))
      steps.push_back({StepKind::kCancel, index, c, 0});
    if (static_cast<int>(ToInt(record.move)) >= config_.moves) continue;
    for (int n = 0; n < config_.nodes; ++n) {
      const bool is_within = static_cast<int>(ToInt(record.owner)) == n + 1;
      if (is_within && !config_.moves_within_nodes) continue;
      if (n == 0 && config_.has_no_returns) continue;
      steps.push_back({StepKind::kStart, index, c, n});
    }
  }
}

void Model::AddNodeSteps(const UnitWorld& unit, int index, int node,
                         std::vector<Step>& steps) const {
  const NodeWorld& at = unit.nodes[node];
  if (at.is_held) return;
  const bool splits_checks = !config_.guards.fence_at_apply;
  for (int k = 0; k < config_.updates; ++k) {
    if (splits_checks && (at.admitted >> k & 1) == 0) {
      const PartAnswer answer = CheckUpdate(at.state, PartOf(unit, k));
      if (answer.status == PartStatus::kApplied)
        steps.push_back({StepKind::kAdmit, index, node, k});
      continue;
    }
    steps.push_back({StepKind::kUpdate, index, node, k});
  }
  if (!at.deciding.empty()) steps.push_back({StepKind::kWritten, index, node, 0});
  if (at.state.reserving != MoveId{0}) steps.push_back({StepKind::kRefused, index, node, 0});
  if (at.state.reserving != MoveId{0}) steps.push_back({StepKind::kReserved, index, node, 0});
  if (config_.has_deadlines && IsFrozen(at.state)) {
    steps.push_back({StepKind::kFreezeDeadline, index, node, 0});
  }
  const UnitDurable& durable = at.state.durable;
  const bool repeats =
      durable.import.has_value() || durable.released.has_value() || at.state.frozen != MoveId{0};
  if (at.state.is_tired || (repeats && config_.is_lossy)) {
    steps.push_back({StepKind::kNodeTick, index, node, 0});
  }
}

void Model::AddDeliveries(const UnitWorld& unit, int index, std::vector<Step>& steps) const {
  for (const std::uint16_t id : unit.messages) {
    const Message& message = messages_[id];
    const bool needs_coordinator = std::holds_alternative<ReportFact>(message.body) ||
                                   std::holds_alternative<PutFact>(message.body);
    if (needs_coordinator && IsCoordinatorDead(unit)) continue;
    const bool is_for_any_node = std::holds_alternative<RecordFact>(message.body);
    const bool is_for_coordinator = std::holds_alternative<ReportFact>(message.body);
    const int receivers = is_for_any_node      ? config_.nodes
                          : is_for_coordinator ? config_.coordinators
                                               : 1;
    for (int r = 0; r < receivers; ++r) {
      const int node = receivers > 1 ? r : message.to;
      if (!needs_coordinator && !MayHear(unit.nodes[node], message)) continue;
      steps.push_back({StepKind::kDeliver, index, node, id});
    }
  }
}

bool Model::IsCoordinatorDead(const UnitWorld& unit) const {
  if (!config_.coordinator_dies) return false;
  for (const NodeWorld& node : unit.nodes) {
    const UnitDurable& durable = node.state.durable;
    if (IsFrozen(node.state) || durable.released.has_value()) return true;
    if (durable.epoch > unit.record.epoch) return true;
  }
  return false;
}

}  // namespace embla::model
