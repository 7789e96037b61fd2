// The coordinator's questions to nodes about their copies of data_parallel tables, and the answers.
// Both go as orders and reports of moves do (move_orders.h), of a unit that no table has; they may
// be lost, repeated, delayed and reordered.
#pragma once

#include <cstdint>

#include "server/migration/move_orders.h"

namespace embla {

inline constexpr std::uint32_t kCopyGranule = UINT32_MAX;

inline UnitId CopyOf(TableId table) { return {table, kCopyGranule, 0}; }
inline bool IsCopy(const UnitId& unit) { return unit.row_granule == kCopyGranule; }

// How is the copy of `table` on `node`, once the node has plan `plan`? With
// `source_is_lost` set, a copy that is to lead by that plan does so as it is: no other one has
// more.
inline UnitOrder AskAboutCopy(TableId table, NodeId node, PlanVersion plan) {
  return {.unit = CopyOf(table), .record = {.owner = node, .epoch = UnitEpoch{ToInt(plan)}}};
}
inline PlanVersion PlanOf(const UnitOrder& question) {
  return PlanVersion{ToInt(question.record.epoch)};
}

// Meanings of a report's kinds for a copy.
inline constexpr UnitReport::Kind kCopyOnItsWay = UnitReport::Kind::kProgress;
inline constexpr UnitReport::Kind kCopyServes = UnitReport::Kind::kReady;
// The copy has every acknowledged update, and its primary has not confirmed it since its process
// began.
inline constexpr UnitReport::Kind kCopyMayLead = UnitReport::Kind::kAborted;
inline constexpr UnitReport::Kind kCopyLeads = UnitReport::Kind::kHandedOver;
inline constexpr UnitReport::Kind kCopyGone = UnitReport::Kind::kRefused;

// `plan` is that of the question.
inline UnitReport AnswerAboutCopy(TableId table, PlanVersion plan, UnitReport::Kind kind) {
  return {.unit = CopyOf(table), .kind = kind, .move = MoveId{ToInt(plan)}};
}

}  // namespace embla
