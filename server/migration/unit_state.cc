#include "server/migration/unit_state.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace embla {
namespace {

void RaiseMinMove(UnitDurable& unit, MoveId move) { unit.min_move = std::max(unit.min_move, move); }

void Apply(const OwnRecord& record, UnitDurable& unit) {
  EMBLA_CHECK(unit.import.has_value());
  unit.import.reset();
  unit.released.reset();
  unit.left.reset();
  unit.epoch = record.epoch;
  unit.lsn = record.lsn;
  unit.windows = record.windows;
  std::fill(unit.touched.begin(), unit.touched.end(), unit.lsn);
  RaiseMinMove(unit, Next(record.move));
}

void Apply(const AppliedUpdate& record, UnitDurable& unit) {
  unit.lsn = record.lsn;
  unit.windows.Record(record.session, record.seq, record.first_incomplete);
  for (const std::uint32_t chunk : record.chunks) unit.touched[chunk] = record.lsn;
}

void Apply(const ReleaseRecord& record, UnitDurable& unit) {
  unit.epoch = UnitEpoch{0};
  unit.released = record.released;
  unit.lsn = record.lsn;
  unit.touched = record.touched;
  if (record.released.move != kAside) RaiseMinMove(unit, Next(record.released.move));
}

void Apply(const AbortRecord& record, UnitDurable& unit) { RaiseMinMove(unit, Next(record.move)); }

void Apply(const TrimRecord&, UnitDurable& unit) {
  unit.left = std::exchange(unit.released, std::nullopt);
  unit.lsn = Lsn{0};
  unit.windows = UnitWindows();
  std::fill(unit.touched.begin(), unit.touched.end(), Lsn{0});
}

void Apply(const ImportRecord& record, UnitDurable& unit) {
  unit.import = ImportState{
      .move = record.move, .source = record.source, .source_epoch = record.source_epoch};
  RaiseMinMove(unit, record.move);
}

void Apply(const DiscardRecord& record, UnitDurable& unit) {
  unit.import.reset();
  RaiseMinMove(unit, Next(record.move));
}

void Apply(const RelocateRecord& record, UnitDurable& unit) {
  unit.import.reset();
  unit.relocated = record.move;
  RaiseMinMove(unit, Next(record.move));
}

// The end of a move raises min_move to the one after it.
MoveId LastMoveOf(const UnitDurable& unit) {
  if (unit.import.has_value()) return unit.import->move;
  if (unit.min_move == MoveId{0}) return unit.min_move;
  return MoveId{ToInt(unit.min_move) - 1};
}

}  // namespace

UnitStanding StandingOf(const UnitState& unit) {
  const UnitDurable& durable = unit.durable;
  UnitStanding standing{.last_move = LastMoveOf(durable)};
  if (Owns(unit)) {
    standing.state = UnitStanding::State::kOwned;
    standing.epoch = durable.epoch;
  } else if (unit.is_releasing) {  // A crash may undo it.
    standing.state = UnitStanding::State::kOwned;
    standing.epoch = UnitEpoch{ToInt(durable.released->epoch) - 1};
  } else if (durable.import.has_value()) {
    standing.state = UnitStanding::State::kComing;
    standing.epoch = durable.import->source_epoch;
    standing.other = durable.import->source;
  } else if (durable.released.has_value() && !IsAside(durable)) {
    standing.state = UnitStanding::State::kHandedOver;
    standing.epoch = durable.released->epoch;
    standing.other = durable.released->to;
  }
  return standing;
}

void Replay(const LogRecord& record, UnitDurable& durable) {
  std::visit([&durable](const auto& r) { Apply(r, durable); }, record);
}

UnitDurable FreshUnit(std::uint32_t chunks, Lsn lsn) {
  UnitDurable unit;
  unit.epoch = UnitEpoch{1};
  unit.lsn = lsn;
  unit.touched.assign(chunks, lsn);
  return unit;
}

void BeginProcess(UnitDurable& durable, const Guards& guards) {
  if (!guards.lsns_begin_anew) return;
  if (durable.epoch == UnitEpoch{0}) return;
  durable.lsn = Lsn{((ToInt(durable.lsn) >> kLsnBitsOfProcess) + 1) << kLsnBitsOfProcess};
  std::fill(durable.touched.begin(), durable.touched.end(), durable.lsn);
}

UnitState Recovered(UnitDurable durable, ChunkVersions staged, std::uint32_t chunks) {
  UnitState unit;
  unit.durable = std::move(durable);
  unit.durable.touched.resize(chunks, Lsn{0});
  unit.written = unit.durable.lsn;
  unit.sent.assign(chunks, Lsn{0});
  unit.staged = std::move(staged);
  unit.staged.resize(chunks, Lsn{0});
  unit.seen.epoch = UnitEpoch{0};
  return unit;
}

}  // namespace embla
