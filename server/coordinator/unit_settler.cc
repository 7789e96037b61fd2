#include "server/coordinator/unit_settler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

constexpr std::size_t kRaisesMax = 60;  // Most raises in one commit, like in a commit of moves.
constexpr std::size_t kOrdersPerTick = 512;  // To one node.
constexpr absl::Duration kTellAgain = absl::Seconds(1);

bool IsOwned(const UnitStanding& standing) { return standing.state == UnitStanding::State::kOwned; }

// A node may serve the unit, or take it over, though it is another node's by now.
bool MayBeBehind(const UnitStanding& standing) {
  return IsOwned(standing) || standing.state == UnitStanding::State::kComing;
}

}  // namespace

// Without a record a unit is at epoch 1 where the plan says.
class UnitSettler::Units {
 public:
  static absl::StatusOr<Units> Of(const StateStore& store, const TablePlan& table) {
    Units units;
    units.cuts_ = CutsOf(table);
    EMBLA_ASSIGN_OR_RETURN(auto records, ListUnits(store, table.spec.id));
    for (auto& [unit, record] : records) units.records_.emplace(unit, record);
    return units;
  }

  // None: the plan has no such unit.
  std::optional<UnitRecord> Find(const UnitId& unit) const {
    const auto cut = std::ranges::find(cuts_, unit.column_granule, &UnitCut::column_granule);
    if (cut == cuts_.end() || unit.row_granule >= cut->owners.size()) return std::nullopt;
    if (const auto found = records_.find(unit); found != records_.end()) return found->second;
    return UnitRecord{.owner = cut->owners[unit.row_granule].node};
  }

 private:
  std::vector<UnitCut> cuts_;
  std::map<UnitId, UnitRecord> records_;
};

absl::Status UnitSettler::Hear(NodeId node, std::vector<UnitStandings> units, absl::Time now) {
  std::ranges::stable_sort(units, {}, &UnitStandings::table);
  settling_.erase(node);
  Raises raises;
  std::optional<Units> known;
  TableId table{};
  const PlanPtr plan = cluster_.plan();
  for (const UnitStandings& run : units) {
    const TablePlan* const here = plan->FindTable(run.table);
    if (here == nullptr || here->replicated() || !MayBeBehind(run.standing)) continue;
    if (!known.has_value() || table != run.table) {
      EMBLA_ASSIGN_OR_RETURN(known, Units::Of(store_, *here));
      table = run.table;
    }
    Compare(node, run, *known, &raises);
  }
  heard_[node] = std::move(units);
  return Write(std::move(raises), now);
}

void UnitSettler::Compare(NodeId node, const UnitStandings& units, const Units& known,
                          Raises* raises) {
  for (std::uint32_t granule = units.granule_begin; granule < units.granule_end; ++granule) {
    const UnitId unit{units.table, granule, units.column_granule};
    const std::optional<UnitRecord> record = known.Find(unit);
    if (!record.has_value()) return;
    if (!IsOwned(units.standing)) {
      if (SaysAborted(*record, units.standing.last_move)) settling_[node].insert(unit);
    } else if (units.standing.epoch > record->epoch) {
      const MoveId move = std::max(record->move, units.standing.last_move);
      const NodeId source = record->owner == node ? NodeId{} : record->owner;
      raises->insert_or_assign(
          unit, Raise{.record = {.owner = node,
                                 .epoch = units.standing.epoch,
                                 .committed = move,
                                 .move = move,
                                 .phase = MovePhase::kNone,
                                 .source = source,
                                 .target = node},
                      .device = {node, units.device},
                      .was_forgotten = move != record->move || record->phase != MovePhase::kOpen});
    } else if (record->owner != node) {
      settling_[node].insert(unit);
    }
  }
}

// The record as it is if it knew of the unit's last move.
std::optional<UnitSettler::Raise> UnitSettler::WhatIsForgotten(const UnitRecord& record,
                                                               const std::vector<Standing>& told) {
  const Standing* owner = nullptr;
  const Standing* coming = nullptr;
  const Standing* gone = nullptr;
  MoveId last{0};
  for (const Standing& one : told) {
    const auto is_newer_than = [&one](const Standing* other) {
      return other == nullptr || one.standing.last_move > other->standing.last_move;
    };
    switch (one.standing.state) {
      case UnitStanding::State::kOwned:
        if (owner == nullptr || one.standing.epoch > owner->standing.epoch) owner = &one;
        break;
      case UnitStanding::State::kComing:
        if (is_newer_than(coming)) coming = &one;
        break;
      case UnitStanding::State::kHandedOver:
        if (is_newer_than(gone)) gone = &one;
        break;
      case UnitStanding::State::kElsewhere:
        break;
    }
    last = std::max(last, one.standing.last_move);
  }
  if (last <= record.move) return std::nullopt;
  UnitRecord now = record;
  now.move = last;
  const bool comes = coming != nullptr && coming->standing.last_move == last;
  if (owner != nullptr) {
    if (owner->node != record.owner || owner->standing.epoch != record.epoch) return std::nullopt;
    now.phase = MovePhase::kOpen;
    now.source = owner->node;
    // Where nobody takes it in, it may have led to another device of its owner.
    now.target = comes ? coming->node : owner->node;
    return Raise{.record = now, .device = {owner->node, owner->device}};
  }
  if (!comes || gone == nullptr || gone->standing.last_move != last) return std::nullopt;
  now.owner = coming->node;
  now.epoch = gone->standing.epoch;
  now.committed = last;
  now.phase = MovePhase::kNone;
  now.source = gone->node;
  now.target = coming->node;
  return Raise{.record = now, .device = {coming->node, coming->device}};
}

absl::Status UnitSettler::EndForgottenMoves(absl::Time now) {
  std::map<UnitId, std::vector<Standing>> told;
  for (const auto& [node, units] : heard_) {
    for (const UnitStandings& run : units) {
      if (run.standing.last_move == MoveId{0}) continue;
      for (std::uint32_t granule = run.granule_begin; granule < run.granule_end; ++granule) {
        told[{run.table, granule, run.column_granule}].push_back({node, run.standing, run.device});
      }
    }
  }
  Raises raises;
  for (const auto& [unit, standings] : told) {
    const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
    if (absl::IsNotFound(stored.status())) continue;
    EMBLA_RETURN_IF_ERROR(stored.status());
    const std::optional<Raise> raise = WhatIsForgotten(stored->record, standings);
    if (!raise.has_value()) continue;
    raises.emplace(unit, *raise);
    if (raise->record.phase != MovePhase::kOpen) continue;
    for (const Standing& one : standings) {
      if (one.node == raise->record.target) unwanted_[unit] = {one.node, one.device};
    }
  }
  return Write(std::move(raises), now);
}

absl::Status UnitSettler::Write(Raises raises, absl::Time now) {
  while (!raises.empty()) {
    Raises batch;
    const TableId table = raises.begin()->first.table;
    while (!raises.empty() && batch.size() < kRaisesMax && raises.begin()->first.table == table) {
      batch.insert(raises.extract(raises.begin()));
    }
    EMBLA_RETURN_IF_ERROR(WriteBatch(batch, now));
  }
  return absl::OkStatus();
}

// The records and the tiling in one commit, as for moves: they never differ.
absl::Status UnitSettler::WriteBatch(const Raises& batch, absl::Time now) {
  const PlanPtr plan = cluster_.plan();
  const TablePlan& table = *plan->FindTable(batch.begin()->first.table);
  PlanEdit edit{.tables = {table},
                .cause = absl::StrCat(batch.size(), " units of table ", table.spec.name,
                                      " put where nodes have them: their moves were forgotten"),
                .at = now};
  std::vector<MoveRun> runs;
  std::vector<std::pair<NodeId, UnitId>> losers;
  std::uint64_t forgotten = 0;
  for (const auto& [unit, raise] : batch) {
    EMBLA_ASSIGN_OR_RETURN(const StoredUnit stored, ReadUnit(store_, *plan, unit));
    edit.compares.push_back({KeyOf(unit), stored.revision});
    edit.writes.push_back({KeyOf(unit), UnitRecordToJson(raise.record)});
    runs.push_back({.table = unit.table,
                    .column_granule = unit.column_granule,
                    .granule_begin = unit.row_granule,
                    .granule_end = unit.row_granule + 1,
                    .from = {},
                    .to = raise.device});
    const NodeId before = stored.record.owner;
    if (before != raise.record.owner && IsOwned(StandingOf(before, unit)))
      losers.emplace_back(before, unit);
    orders_[raise.record.owner].push_back(
        {.unit = unit, .record = raise.record, .plan = Next(plan->version())});
    if (raise.was_forgotten) ++forgotten;
  }
  SetTiling(*plan, TilingAfter(table, runs), edit.tables.front());
  EMBLA_RETURN_IF_ERROR(cluster_.PutPlan(std::move(edit)).status());
  raised_ += forgotten;
  if (forgotten > 0) {
    LogError("coordinator",
             "records of units were behind what nodes have, and are raised table=", table.spec.name,
             " units=", forgotten);
  }
  for (const auto& [node, unit] : losers) settling_[node].insert(unit);
  return absl::OkStatus();
}

UnitStanding UnitSettler::StandingOf(NodeId node, const UnitId& unit) const {
  const auto units = heard_.find(node);
  if (units == heard_.end()) return {};
  for (const UnitStandings& run : units->second) {
    const bool has = run.table == unit.table && run.column_granule == unit.column_granule &&
                     run.granule_begin <= unit.row_granule && unit.row_granule < run.granule_end;
    if (has) return run.standing;
  }
  return {};
}

absl::Status UnitSettler::OnReport(NodeId node, const UnitReport& report, absl::Time now) {
  if (report.kind == UnitReport::Kind::kSettled) {
    const auto units = settling_.find(node);
    if (units == settling_.end() || units->second.erase(report.unit) == 0) return absl::OkStatus();
    LogInfo("coordinator", "a node has let go of a unit that is another node's node=", ToInt(node),
            " unit=", KeyOf(report.unit));
    if (units->second.empty()) settling_.erase(units);
    return absl::OkStatus();
  }
  const auto open = unwanted_.find(report.unit);
  if (open == unwanted_.end()) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(const StoredUnit stored, ReadUnit(store_, *cluster_.plan(), report.unit));
  const UnitRecord& record = stored.record;
  const bool is_told = record.phase == MovePhase::kOpen && record.move == report.move &&
                       (node == record.source || node == record.target);
  if (!is_told) return absl::OkStatus();
  Raise raise{.record = {}, .device = open->second, .was_forgotten = false};
  if (report.kind == UnitReport::Kind::kHandedOver) {
    EMBLA_ASSIGN_OR_RETURN(raise.record, HandedOver(record, report.move));
  } else if (report.kind == UnitReport::Kind::kAborted && node == record.source) {
    EMBLA_ASSIGN_OR_RETURN(raise.record, Aborted(record, report.move));
    EMBLA_ASSIGN_OR_RETURN(raise.device, OwnerInPlan(*cluster_.plan(), report.unit));
  } else {
    return absl::OkStatus();
  }
  return Write({{report.unit, raise}}, now);
}

void UnitSettler::DropAside(NodeId node, TableId table) {
  // Granule and record say nothing; they only must be some.
  orders_[node].push_back({.unit = {.table = table},
                           .record = {.owner = node, .epoch = UnitEpoch{1}},
                           .drops_aside = true});
}

void UnitSettler::Tick(absl::Time now) {
  if ((settling_.empty() && unwanted_.empty()) || now - told_ < kTellAgain) return;
  told_ = now;
  std::erase_if(unwanted_, [this](const auto& entry) {
    const auto& [unit, device] = entry;
    const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
    if (!stored.ok() || stored->record.phase != MovePhase::kOpen) return true;
    orders_[stored->record.source].push_back(
        {.unit = unit, .record = stored->record, .cancels = true});
    return false;
  });
  for (auto& [node, units] : settling_) {
    if (!cluster_.IsLive(node)) continue;
    std::size_t told = 0;
    std::erase_if(units, [&](const UnitId& unit) {
      if (told == kOrdersPerTick) return false;
      const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), unit);
      if (!stored.ok() || stored->record.owner == node) return true;  // Dropped, or it came back.
      ++told;
      orders_[node].push_back({.unit = unit, .record = stored->record, .settles = true});
      return false;
    });
  }
  std::erase_if(settling_, [](const auto& entry) { return entry.second.empty(); });
}

std::map<NodeId, std::vector<UnitOrder>> UnitSettler::TakeOrders() {
  return std::exchange(orders_, {});
}

}  // namespace embla
