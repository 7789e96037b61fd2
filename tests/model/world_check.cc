// Invariants of every world.
#include "absl/strings/str_cat.h"
#include "tests/model/world.h"

namespace embla::model {
namespace {

int IndexOf(NodeId id) { return static_cast<int>(ToInt(id)) - 1; }

bool TakesUpdates(const UnitState& unit) { return Owns(unit) && !IsFrozen(unit); }

// The copy that the store's record points at: the owner's, or the one it will install.
const Rows* CommittedRows(const UnitWorld& unit) {
  const NodeWorld& owner = unit.nodes[IndexOf(unit.record.owner)];
  if (owner.state.durable.epoch == unit.record.epoch) return &owner.rows;
  const auto& import = owner.state.durable.import;
  const bool is_sealed_for_it =
      import.has_value() && import->is_sealed && import->move == unit.record.committed;
  return is_sealed_for_it ? &owner.staged : nullptr;
}

}  // namespace

std::optional<std::string> Model::Violation(const World& world) const {
  for (const UnitWorld& unit : world) {
    if (auto violation = ViolationOf(unit)) return violation;
  }
  return std::nullopt;
}

std::optional<std::string> Model::ViolationOf(const UnitWorld& unit) const {
  if (!unit.broken.empty()) return unit.broken;
  const Rows* rows = CommittedRows(unit);
  for (int k = 0; k < config_.updates; ++k) {
    const bool is_acked = (unit.acked >> k & 1) != 0;
    if (is_acked && (rows == nullptr || (*rows)[k] < 1)) {
      return absl::StrCat("update ", k, " was acknowledged and is lost");
    }
    if (rows != nullptr && (*rows)[k] > 1) return absl::StrCat("update ", k, " was applied twice");
  }
  int writers = 0;
  for (const NodeWorld& node : unit.nodes) writers += TakesUpdates(node.state) ? 1 : 0;
  if (writers > 1) return "two nodes take updates of one unit";
  const UnitDurable& retainer = unit.nodes[unit.retainer].state.durable;
  const bool is_kept = retainer.epoch != UnitEpoch{0} || retainer.retained != MoveId{0};
  if (!unit.is_covered && !is_kept) return "the old copy went before the new one was covered";
  const bool is_settled = unit.record.phase != MovePhase::kCommitted;
  if (is_settled && unit.nodes[IndexOf(unit.record.owner)].changed_for != unit.within) {
    return "the rows are on another device than the record says";
  }
  const bool logs_all = config_.guards.freeze_persisted && config_.guards.seal_persisted;
  for (const NodeWorld& node : unit.nodes) {
    if (logs_all && node.logged != node.state.durable)
      return "replaying the log yields another state";
  }
  return LookupViolation(unit);
}

// A lookup that knows the record is served by the owner, which may read the record first.
std::optional<std::string> Model::LookupViolation(const UnitWorld& unit) const {
  const int owner = IndexOf(unit.record.owner);
  const UnitState& state = unit.nodes[owner].state;
  if (CheckLookup(state, unit.record.epoch).status == PartStatus::kApplied) return std::nullopt;
  const NodeStep step = StepNode(ContextOf(owner), state, RecordEvent{unit.record});
  if (CheckLookup(step.state, unit.record.epoch).status == PartStatus::kApplied) {
    return std::nullopt;
  }
  return "no node can answer lookups";
}

bool Model::IsGoal(const World& world) const {
  for (const UnitWorld& unit : world) {
    if (unit.acked != (1 << config_.updates) - 1) return false;
    if (unit.record.phase == MovePhase::kOpen) return false;
    if (unit.record.phase == MovePhase::kCommitted && IsWithinNode(unit.record)) return false;
    const UnitState& owner = unit.nodes[IndexOf(unit.record.owner)].state;
    if (!TakesUpdates(owner) || owner.durable.epoch != unit.record.epoch) return false;
  }
  return true;
}

}  // namespace embla::model
