#include "server/migration/unit_record.h"

#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace embla {
namespace {

absl::string_view PhaseName(MovePhase phase) {
  switch (phase) {
    case MovePhase::kNone:
      return "none";
    case MovePhase::kOpen:
      return "open";
    case MovePhase::kAborted:
      return "aborted";
  }
  return "unknown";
}

absl::Status Refused(absl::string_view change, MoveId move, const UnitRecord& record) {
  return absl::FailedPreconditionError(absl::StrCat("cannot ", change, " move ", ToInt(move),
                                                    ": the unit is at ", ToString(record)));
}

}  // namespace

absl::StatusOr<UnitRecord> Opened(const UnitRecord& record, NodeId target) {
  if (record.phase == MovePhase::kOpen) return Refused("open", Next(record.move), record);
  UnitRecord opened = record;
  opened.move = Next(record.move);
  opened.phase = MovePhase::kOpen;
  opened.source = record.owner;
  opened.target = target;
  return opened;
}

absl::StatusOr<UnitRecord> OpenedAnew(const UnitRecord& record, NodeId target) {
  absl::StatusOr<UnitRecord> opened = Opened(record, target);
  if (opened.ok()) opened->source = NodeId{0};
  return opened;
}

absl::StatusOr<UnitRecord> Aborted(const UnitRecord& record, MoveId move) {
  if (record.phase != MovePhase::kOpen || record.move != move) {
    return Refused("abort", move, record);
  }
  UnitRecord aborted = record;
  aborted.phase = MovePhase::kAborted;
  return aborted;
}

absl::StatusOr<UnitRecord> HandedOver(const UnitRecord& record, MoveId move, const Guards& guards) {
  const bool is_this = record.move == move || !guards.facts_match_move;
  if (record.phase != MovePhase::kOpen || !is_this) return Refused("end", move, record);
  UnitRecord after = record;
  after.owner = record.target;
  if (!IsWithinNode(record)) after.epoch = Next(record.epoch);
  after.committed = record.move;
  after.phase = MovePhase::kNone;
  return after;
}

bool SaysAborted(const UnitRecord& record, MoveId move) {
  if (record.committed == move) return false;
  return record.move > move || (record.move == move && record.phase == MovePhase::kAborted);
}

bool IsNewer(const UnitRecord& a, const UnitRecord& b) {
  const auto rank = [](const UnitRecord& r) {
    const int phase = r.phase == MovePhase::kNone ? 3 : static_cast<int>(r.phase);
    return std::tuple(r.epoch, r.move, phase);
  };
  return rank(a) > rank(b);
}

std::string ToString(const UnitRecord& record) {
  return absl::StrCat("{owner ", ToInt(record.owner), " epoch ", ToInt(record.epoch), " move ",
                      ToInt(record.move), " ", PhaseName(record.phase), " ", ToInt(record.source),
                      "->", ToInt(record.target), " committed ", ToInt(record.committed), "}");
}

}  // namespace embla
