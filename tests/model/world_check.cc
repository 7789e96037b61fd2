// Invariants of every world.
#include "absl/strings/str_cat.h"
#include "tests/model/world.h"

namespace embla::model {
namespace {

bool TakesUpdates(const NodeWorld& node) {
  return !node.is_held && Owns(node.state) && !IsFrozen(node.state);
}

// The copy that counts: that of the highest epoch. A unit that was handed over is its old owner's
// until the new one has taken over.
struct Authority {
  UnitEpoch epoch{0};
  bool is_owner = false;
  const Rows* rows = nullptr;
  int released_to = -1;
};
Authority AuthorityOf(const UnitWorld& unit) {
  Authority best;
  for (const NodeWorld& node : unit.nodes) {
    const UnitDurable& durable = node.state.durable;
    const bool is_owner = Owns(node.state);
    if (!is_owner && (!durable.released.has_value() || IsAside(durable))) continue;
    const UnitEpoch epoch = is_owner ? durable.epoch : durable.released->epoch;
    if (epoch < best.epoch || (epoch == best.epoch && !is_owner)) continue;
    const int to = is_owner ? -1 : IndexOf(durable.released->to);
    best = {epoch, is_owner, &node.rows, to};
  }
  return best;
}

}  // namespace

// The copy of the highest epoch counts that no single death takes away any more, unless its keeper
// may have been told that the restored node has it; and where the record has an owner that is none
// by its log, nothing: that one may begin anew.
std::uint8_t Model::WhatIsLeft(const UnitWorld& unit, int restored) const {
  const auto of = [&](const Authority& authority) -> std::uint8_t {
    if (authority.rows == nullptr || unit.record.epoch > authority.epoch) return 0;
    if (!authority.is_owner && authority.released_to == restored) return 0;
    std::uint8_t left = 0;
    for (int k = 0; k < config_.updates; ++k) left |= ((*authority.rows)[k] > 0 ? 1 : 0) << k;
    return left;
  };
  UnitWorld synced = unit;
  for (NodeWorld& node : synced.nodes) {
    node.state.durable = node.synced;
    node.rows = node.synced_rows;
  }
  return of(AuthorityOf(unit)) & of(AuthorityOf(synced));
}

std::optional<std::string> Model::Violation(const World& world) const {
  for (const UnitWorld& unit : world) {
    if (auto violation = ViolationOf(unit)) return violation;
  }
  return std::nullopt;
}

std::optional<std::string> Model::ViolationOf(const UnitWorld& unit) const {
  if (!unit.broken.empty()) return unit.broken;
  const Authority authority = AuthorityOf(unit);
  const bool was_restored = unit.restores > 0;
  if (authority.rows == nullptr) {
    if (!was_restored) return "nobody has the unit";
    return unit.acked == 0 ? std::nullopt : std::optional("an acknowledged update is nowhere");
  }
  const Rows& rows = *authority.rows;
  int writers = 0;
  for (const NodeWorld& node : unit.nodes) writers += TakesUpdates(node) ? 1 : 0;
  if (writers > 1) return "two nodes take updates of one unit";
  for (int k = 0; k < config_.updates; ++k) {
    const bool is_acked = (unit.acked >> k & 1) != 0;
    if (is_acked && rows[k] < 1) {
      return absl::StrCat("update ", k, " was acknowledged and is lost");
    }
    if (rows[k] > 1) return absl::StrCat("update ", k, " was applied twice");
    for (const NodeWorld& node : unit.nodes) {
      const bool is_read =
          !node.is_held && CheckLookup(node.state, UnitEpoch{0}).status == PartStatus::kApplied;
      if (is_acked && is_read && node.rows[k] < 1) return "a lookup misses an acknowledged update";
    }
  }
  if (unit.record.epoch > authority.epoch && !was_restored) {
    return "the record is ahead of the nodes";
  }
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
  const Guards& guards = config_.guards;
  const bool logs_all = guards.release_synced && guards.abort_synced && guards.promise_synced;
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
    const NodeWorld& owner = unit.nodes[IndexOf(unit.record.owner)];
    if (!TakesUpdates(owner) || owner.state.durable.epoch != unit.record.epoch) return false;
    for (const NodeWorld& node : unit.nodes) {
      if (node.is_held) return false;
    }
  }
  return true;
}

}  // namespace embla::model
