// Updates and lookups: who answers what. The fence is checked here twice: by CheckUpdate when a
// request arrives, and by the step that decides the update, which may be much later.
#include "server/migration/node_stepper.h"

namespace embla {
namespace {

// A node that heard of a newer epoch but is not its owner can only say: ask again.
bool IsBehind(const UnitState& unit, UnitEpoch epoch) {
  const auto& handed = HandedTo(unit.durable);
  return epoch > unit.durable.epoch && epoch > unit.seen.epoch &&
         (!handed.has_value() || epoch > handed->epoch);
}

PartAnswer Moved(const UnitState& unit) {
  const auto& handed = HandedTo(unit.durable);
  if (handed.has_value() && handed->epoch >= unit.seen.epoch) {
    return {.status = PartStatus::kMoved, .owner = handed->to, .epoch = handed->epoch};
  }
  const bool is_known = unit.seen.epoch != UnitEpoch{0};
  return {.status = PartStatus::kMoved,
          .owner = is_known ? unit.seen.owner : NodeId{0},
          .epoch = unit.seen.epoch};
}

}  // namespace

PartAnswer CheckUpdate(const UnitState& unit, const UnitUpdate& part) {
  if (IsBehind(unit, part.epoch)) {
    return {.status = PartStatus::kEpochAhead, .epoch = unit.durable.epoch};
  }
  const UnitDurable& durable = unit.durable;
  if (unit.is_releasing) return {.status = PartStatus::kFrozen, .epoch = durable.epoch};
  if (!Owns(unit)) return Moved(unit);
  switch (durable.windows.Classify(part.session, part.seq, part.first_incomplete)) {
    case UnitWindows::Verdict::kApplied:
      return {.status = PartStatus::kDuplicate, .lsn = durable.lsn, .epoch = durable.epoch};
    case UnitWindows::Verdict::kTooNew:
      return {.status = PartStatus::kSeqTooNew, .epoch = durable.epoch};
    case UnitWindows::Verdict::kNew:
      break;
  }
  if (IsFrozen(unit)) return {.status = PartStatus::kFrozen, .epoch = durable.epoch};
  return {.status = PartStatus::kApplied, .lsn = Next(durable.lsn), .epoch = durable.epoch};
}

PartAnswer CheckLookup(const UnitState& unit, UnitEpoch epoch) {
  if (IsBehind(unit, epoch)) {
    return {.status = PartStatus::kEpochAhead, .epoch = unit.durable.epoch};
  }
  if (!Owns(unit) && !unit.is_releasing) return Moved(unit);
  return {.status = PartStatus::kApplied, .lsn = unit.written, .epoch = unit.durable.epoch};
}

namespace detail {

void NodeStepper::On(const UnitUpdate& part) {
  PartAnswer answer = CheckUpdate(unit(), part);
  if (!guards_.fence_at_apply && answer.status != PartStatus::kDuplicate) {
    answer = {.status = PartStatus::kApplied, .lsn = Next(durable().lsn)};
  }
  if (!guards_.dedup_checked && answer.status == PartStatus::kDuplicate && !IsFrozen(unit())) {
    answer = {.status = PartStatus::kApplied, .lsn = Next(durable().lsn)};
  }
  if (answer.status == PartStatus::kApplied) {
    Log(AppliedUpdate{.lsn = answer.lsn,
                      .session = part.session,
                      .seq = part.seq,
                      .first_incomplete = part.first_incomplete,
                      .chunks = part.chunks});
    Do(WriteRows{answer.lsn});
  }
  step_.answer = answer;
}

void NodeStepper::On(const WrittenEvent& event) {
  if (event.lsn > unit().written) unit().written = event.lsn;
  if (unit().freezing != MoveId{0} && unit().written == durable().lsn) FinishFreeze();
}

}  // namespace detail
}  // namespace embla
