#include "server/migration/unit_state.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace embla {
namespace {

void RaiseMinMove(UnitDurable& unit, MoveId move) { unit.min_move = std::max(unit.min_move, move); }

void Apply(const OwnRecord& record, UnitDurable& unit) {
  EMBLA_CHECK(unit.import.has_value() && unit.import->is_sealed);
  ImportState import = *std::move(unit.import);
  unit.import.reset();
  unit.epoch = record.epoch;
  unit.frozen = MoveId{0};
  unit.retained = MoveId{0};
  unit.lsn = import.lsn;
  unit.windows = std::move(import.windows);
  std::fill(unit.touched.begin(), unit.touched.end(), unit.lsn);
  RaiseMinMove(unit, Next(record.move));
}

void Apply(const AppliedUpdate& record, UnitDurable& unit) {
  unit.lsn = record.lsn;
  unit.windows.Record(record.session, record.seq, record.first_incomplete);
  for (const std::uint32_t chunk : record.chunks) unit.touched[chunk] = record.lsn;
}

void Apply(const FreezeRecord& record, UnitDurable& unit) {
  unit.frozen = record.move;
  unit.lsn = record.lsn;
  unit.touched = record.touched;
  RaiseMinMove(unit, record.move);
}

void Apply(const UnfreezeRecord& record, UnitDurable& unit) {
  unit.frozen = MoveId{0};
  RaiseMinMove(unit, Next(record.move));
}

void Apply(const ReleaseRecord& record, UnitDurable& unit) {
  unit.epoch = UnitEpoch{0};
  unit.frozen = MoveId{0};
  unit.retained = record.move;
  if (record.move != kAside) RaiseMinMove(unit, Next(record.move));
}

void Apply(const TrimRecord&, UnitDurable& unit) {
  unit.retained = MoveId{0};
  unit.lsn = Lsn{0};
  unit.windows = UnitWindows();
  std::fill(unit.touched.begin(), unit.touched.end(), Lsn{0});
}

void Apply(const ImportRecord& record, UnitDurable& unit) {
  unit.import = ImportState{
      .move = record.move, .source = record.source, .source_epoch = record.source_epoch};
  RaiseMinMove(unit, record.move);
}

void Apply(const SealRecord& record, UnitDurable& unit) {
  EMBLA_CHECK(unit.import.has_value());
  unit.import->is_sealed = true;
  unit.import->lsn = record.lsn;
  unit.import->windows = record.windows;
}

void Apply(const DiscardRecord& record, UnitDurable& unit) {
  unit.import.reset();
  RaiseMinMove(unit, Next(record.move));
}

void Apply(const RelocateRecord& record, UnitDurable& unit) {
  unit.import.reset();
  RaiseMinMove(unit, Next(record.move));
}

// A freeze and an import raise min_move to their move, what ends them to the one after it.
MoveId LastMoveOf(const UnitDurable& unit) {
  const bool is_open = unit.frozen != MoveId{0} || unit.import.has_value();
  if (is_open || unit.min_move == MoveId{0}) return unit.min_move;
  return MoveId{ToInt(unit.min_move) - 1};
}

}  // namespace

UnitStanding StandingOf(const UnitState& unit) {
  const UnitDurable& durable = unit.durable;
  UnitStanding standing{.last_move = LastMoveOf(durable)};
  if (Owns(unit)) {
    standing.state = UnitStanding::State::kOwned;
    standing.epoch = durable.epoch;
  } else if (durable.import.has_value() && durable.import->is_sealed) {
    standing.state = UnitStanding::State::kSealed;
    standing.epoch = durable.import->source_epoch;
    standing.source = durable.import->source;
  } else if (durable.retained != MoveId{0} && durable.retained != kAside) {
    standing.state = UnitStanding::State::kHandedOver;
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
  if (durable.epoch == UnitEpoch{0} || durable.frozen != MoveId{0}) return;
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
