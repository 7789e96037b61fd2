// Invariants of every world.
#include "absl/strings/str_cat.h"
#include "tests/model/world.h"

namespace embla::model {
namespace {

int IndexOf(NodeId id) { return static_cast<int>(ToInt(id)) - 1; }

bool TakesUpdates(const UnitState& unit) { return Owns(unit) && !IsFrozen(unit); }

// The copy that counts: that of the highest epoch. A unit that was handed over is its old owner's
// until the new one has taken over.
struct Authority {
  UnitEpoch epoch{0};
  bool is_owner = false;
  const Rows* rows = nullptr;
};
Authority AuthorityOf(const UnitWorld& unit) {
  Authority best;
  for (const NodeWorld& node : unit.nodes) {
    const UnitDurable& durable = node.state.durable;
    const bool is_owner = Owns(node.state);
    if (!is_owner && (!durable.released.has_value() || IsAside(durable))) continue;
    const UnitEpoch epoch = is_owner ? durable.epoch : durable.released->epoch;
    if (epoch < best.epoch || (epoch == best.epoch && !is_owner)) continue;
    best = {epoch, is_owner, &node.rows};
  }
  return best;
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
  const Authority authority = AuthorityOf(unit);
  if (authority.rows == nullptr) return "nobody has the unit";
  const Rows& rows = *authority.rows;
  int writers = 0;
  for (const NodeWorld& node : unit.nodes) writers += TakesUpdates(node.state) ? 1 : 0;
  if (writers > 1) return "two nodes take updates of one unit";
  for (int k = 0; k < config_.updates; ++k) {
    const bool is_acked = (unit.acked >> k & 1) != 0;
    if (is_acked && rows[k] < 1) {
      return absl::StrCat("update ", k, " was acknowledged and is lost");
    }
    if (rows[k] > 1) return absl::StrCat("update ", k, " was applied twice");
    for (const NodeWorld& node : unit.nodes) {
      const bool is_read = CheckLookup(node.state, UnitEpoch{0}).status == PartStatus::kApplied;
      if (is_acked && is_read && node.rows[k] < 1) return "a lookup misses an acknowledged update";
    }
  }
  if (unit.record.epoch > authority.epoch) return "the record is ahead of the nodes";
  for (const NodeWorld& node : unit.nodes) {
    const auto& released = node.state.durable.released;
    const bool is_aborted = unit.record.phase == MovePhase::kAborted && released.has_value() &&
                            released->move == unit.record.move;
    if (is_aborted) return "a move takes place that was said to be aborted";
  }
  const bool is_settled =
      unit.record.phase == MovePhase::kNone || unit.record.phase == MovePhase::kAborted;
  const NodeWorld& owner = unit.nodes[IndexOf(unit.record.owner)];
  if (is_settled && Owns(owner.state) && owner.changed_for != unit.within) {
    return "the rows are on another device than the record says";
  }
  const bool logs_all = config_.guards.release_synced && config_.guards.abort_synced;
  for (const NodeWorld& node : unit.nodes) {
    if (logs_all && node.logged != node.state.durable)
      return "replaying the log yields another state";
  }
  return std::nullopt;
}

bool Model::IsGoal(const World& world) const {
  for (const UnitWorld& unit : world) {
    if (unit.acked != (1 << config_.updates) - 1) return false;
    if (config_.coordinator_dies) continue;
    if (unit.record.phase == MovePhase::kOpen) return false;
    const UnitState& owner = unit.nodes[IndexOf(unit.record.owner)].state;
    if (!TakesUpdates(owner) || owner.durable.epoch != unit.record.epoch) return false;
  }
  return true;
}

}  // namespace embla::model
