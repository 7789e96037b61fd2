// Units at rest on a node: when their records of updates join those of their tables' rest, and
// when they are taken apart again. server/migration/record_fold.h says which conditions hold; here
// is who asks them.
//
// Every fold_interval, each table with units at rest makes a round on its lead device: the fold
// begins, or looks at what is over; then each unit is noted, or joins. A step of a unit that has
// joined takes it apart first, so that a move finds a unit with a record of its own.
#include <memory>
#include <set>
#include <utility>

#include "server/mover/mover.h"

namespace embla {
namespace {

// Most units in a round whose record is asked for: it is told anyway, once a plan has the unit.
constexpr int kAsksMax = 64;

bool HasGate(const MovingUnit& unit) {
  const bool is_here = unit.status.phase != UnitPhase::kElsewhere && !unit.is_folded;
  return is_here || unit.left_since.has_value();
}

}  // namespace

void Mover::OnPlan(PlanVersion plan, std::map<NodeId, std::string> addresses) {
  queue_->Post([this, plan, addresses = std::move(addresses)] {
    plan_ = plan;
    for (const auto& [node, address] : addresses) addresses_[node] = address;
  });
}

void Mover::KeepTables(std::set<TableId> tables) {
  queue_->Post([this, tables = std::move(tables)] {
    const auto is_dropped = [&tables](TableId table) { return !tables.contains(table); };
    std::erase_if(units_, [&](const auto& entry) {
      if (!is_dropped(entry.first.table)) return false;
      metrics_.Forget(entry.second->status.phase);
      return true;
    });
    const auto of_table = [&](const auto& entry) { return is_dropped(entry.first); };
    std::erase_if(folded_, of_table);
    std::erase_if(fold_not_before_, of_table);
    std::erase_if(early_pulls_, [&](const auto& entry) { return is_dropped(entry.first.table); });
    TakeImageIfLogged();
  });
}

void Mover::FoldUnits(absl::Time now) {
  if (now < fold_at_ || plan_ == PlanVersion{}) return;
  fold_at_ = now + options_.fold_interval;
  asks_left_ = kAsksMax;
  std::set<TableId> stepped;
  for (const auto& [id, unit] : units_) {
    LetGateGo(*unit);
    const bool is_at_rest = unit->status.phase == UnitPhase::kAtRest && !unit->is_busy &&
                            unit->work.empty() && !unit->adopts.has_value();
    if (!is_at_rest || unit->is_folded) continue;
    if (unit->here_since == kUnknownPlan) AskForRecord(*unit);
    if (unit->here_since > plan_) continue;
    const auto paused = fold_not_before_.find(id.table);
    if (paused != fold_not_before_.end() && now < paused->second) continue;
    if (!parts_.host.ShapeOf(id).ok()) continue;  // The table was dropped.
    if (stepped.insert(id.table).second) {
      parts_.host.RunInOrder(id.table, [&host = parts_.host, table = id.table, plan = plan_] {
        host.StepFold(table, plan);
      });
    }
    parts_.host.RunInOrder(id.table,
                           [fold = fold_steps(), id = id, plan = plan_, tracker = unit->tracker] {
                             if (tracker->MayFold()) fold.NoteOrJoin(id, *tracker, plan);
                           });
  }
}

void Mover::AskForRecord(const MovingUnit& unit) {
  if (asks_left_ == 0) return;
  --asks_left_;
  Report(unit, UnitReport::Kind::kReadRecord, {}, "");
}

void Mover::LetGateGo(MovingUnit& unit) {
  if (!unit.left_since.has_value() || unit.status.phase != UnitPhase::kElsewhere) return;
  if (*unit.left_since == kUnknownPlan) AskForRecord(unit);
  if (*unit.left_since > plan_ || unit.is_busy || !unit.work.empty()) return;
  unit.left_since.reset();
  parts_.host.RunInOrder(unit.id.table,
                         [&host = parts_.host, id = unit.id, tracker = unit.tracker] {
                           if (tracker->Status().phase == UnitPhase::kElsewhere)
                             host.SetGate(id, nullptr);
                         });
}

void Mover::FoldSteps::NoteOrJoin(const UnitId& id, UnitTracker& tracker, PlanVersion plan) const {
  const PlanVersion joins = parts.host.MayJoin(id);
  if (joins == PlanVersion{}) {
    return parts.host.NoteForFold(id, tracker.state().durable.windows, plan);
  }
  if (!parts.log.AppendFolded(id, joins).ok()) return;
  parts.host.JoinRest(id, tracker.Fold(joins), joins);
  queue->Post([mover = mover, id] { mover->OnFolded(id, true); });
}

bool Mover::FoldSteps::TakeApart(const UnitId& id,
                                 const std::shared_ptr<UnitTracker>& tracker) const {
  if (!tracker->is_folded()) return true;
  if (!parts.log.AppendAdopted(id, tracker->state().durable.epoch).ok()) return false;
  tracker->TakeBack(parts.host.WindowsOf(id));
  parts.host.SetGate(id, tracker);
  queue->Post([mover = mover, id] { mover->OnFolded(id, false); });
  return true;
}

void Mover::OnFolded(const UnitId& id, bool is_folded) {
  MovingUnit* const unit = Find(id);
  if (unit == nullptr) return;
  unit->is_folded = is_folded;
  std::size_t& folded = folded_[id.table];
  is_folded ? ++folded : --folded;
  if (is_folded) metrics_.folded.Add();
  if (folded == 0) folded_.erase(id.table);
}

void Mover::TakeApartWhatAsks(absl::Time now) {
  for (const auto& [table, folded] : folded_) {
    if (!parts_.host.AsksApart(table)) continue;
    fold_not_before_[table] = now + options_.fold_pause;
    for (auto it = units_.lower_bound({table, 0, 0});
         it != units_.end() && it->first.table == table; ++it) {
      if (!it->second->is_folded) continue;
      parts_.host.RunInOrder(table,
                             [fold = fold_steps(), id = it->first, tracker = it->second->tracker] {
                               fold.TakeApart(id, tracker);
                             });
    }
  }
}

void Mover::CountGates() {
  std::size_t gates = 0;
  for (const auto& [id, unit] : units_) gates += HasGate(*unit) ? 1 : 0;
  metrics_.gates.Set(static_cast<double>(gates));
}

}  // namespace embla
