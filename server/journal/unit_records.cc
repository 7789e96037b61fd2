#include "server/journal/unit_records.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/journal/windows_bytes.h"

namespace embla {
namespace {

// Numbers are part of the format.
enum class ControlKind : std::uint32_t {
  kOwn = 1,
  kRelease = 2,
  kAbort = 3,
  kTrim = 4,
  kImport = 5,
  kDiscard = 6,
  kRelocate = 7,
};

absl::Status DamagedUnit(const char* record) {
  return absl::DataLossError(absl::StrCat(record, " record of a unit: damaged"));
}

void Put(const UnitId& unit, RecordWriter& out) {
  out.Put(ToInt(unit.table));
  out.Put(unit.row_granule);
  out.Put(unit.column_granule);
}

UnitId GetUnit(RecordReader& in) {
  UnitId unit;
  unit.table = GetId<TableId>(in);
  unit.row_granule = in.Get<std::uint32_t>();
  unit.column_granule = in.Get<std::uint32_t>();
  return unit;
}

void Put(const ChunkVersions& versions, RecordWriter& out) {
  out.Put(static_cast<std::uint32_t>(versions.size()));
  for (const Lsn version : versions) out.Put(ToInt(version));
}

ChunkVersions GetVersions(RecordReader& in) {
  ChunkVersions versions(in.GetCount(sizeof(Lsn)));
  for (Lsn& version : versions) version = GetId<Lsn>(in);
  return versions;
}

// Flags of a unit on the move.
constexpr std::uint32_t kHasImport = 1;
constexpr std::uint32_t kIsReleased = 2;
constexpr std::uint32_t kHasLeft = 4;

void Put(const ReleasedState& released, RecordWriter& out) {
  out.Put(ToInt(released.to));
  out.Put(ToInt(released.epoch));
  out.Put(ToInt(released.move));
}

ReleasedState GetReleased(RecordReader& in) {
  ReleasedState released;
  released.to = GetId<NodeId>(in);
  released.epoch = GetId<UnitEpoch>(in);
  released.move = GetId<MoveId>(in);
  return released;
}

// Adds what a snapshot says of every unit.
void PutUnit(const RestoredUnit& record, RecordWriter& out) {
  const UnitDurable& durable = record.durable;
  Put(record.unit, out);
  out.Put(ToInt(durable.epoch));
  out.Put(ToInt(durable.min_move));
  out.Put(ToInt(durable.relocated));
  out.Put(ToInt(durable.lsn));
  out.Put(ToInt(record.folded));
  PutWindows(durable.windows, out);
  Put(durable.touched, out);
}

RestoredUnit GetRestored(RecordReader& in) {
  RestoredUnit record;
  record.unit = GetUnit(in);
  record.durable.epoch = GetId<UnitEpoch>(in);
  record.durable.min_move = GetId<MoveId>(in);
  record.durable.relocated = GetId<MoveId>(in);
  record.durable.lsn = GetId<Lsn>(in);
  record.folded = GetId<PlanVersion>(in);
  record.durable.windows = GetWindows(in);
  record.durable.touched = GetVersions(in);
  return record;
}

class ControlWriter {
 public:
  explicit ControlWriter(RecordWriter& out) : out_(out) {}

  void operator()(const OwnRecord& record) {
    Begin(ControlKind::kOwn, record.move);
    out_.Put(ToInt(record.epoch));
    out_.Put(ToInt(record.lsn));
    PutWindows(record.windows, out_);
  }
  void operator()(const ReleaseRecord& record) {
    Begin(ControlKind::kRelease, record.released.move);
    out_.Put(ToInt(record.released.to));
    out_.Put(ToInt(record.released.epoch));
    out_.Put(ToInt(record.lsn));
    Put(record.touched, out_);
  }
  void operator()(const AbortRecord& record) { Begin(ControlKind::kAbort, record.move); }
  void operator()(const TrimRecord& record) { Begin(ControlKind::kTrim, record.move); }
  void operator()(const ImportRecord& record) {
    Begin(ControlKind::kImport, record.move);
    out_.Put(ToInt(record.source));
    out_.Put(ToInt(record.source_epoch));
  }
  void operator()(const DiscardRecord& record) { Begin(ControlKind::kDiscard, record.move); }
  void operator()(const RelocateRecord& record) { Begin(ControlKind::kRelocate, record.move); }
  void operator()(const AppliedUpdate&) { EMBLA_CHECK(false); }

 private:
  void Begin(ControlKind kind, MoveId move) {
    out_.Put(static_cast<std::uint32_t>(kind));
    out_.Put(ToInt(move));
  }

  RecordWriter& out_;
};

std::optional<LogRecord> GetControl(RecordReader& in) {
  const auto kind = static_cast<ControlKind>(in.Get<std::uint32_t>());
  const auto move = GetId<MoveId>(in);
  switch (kind) {
    case ControlKind::kOwn: {
      OwnRecord own{.epoch = GetId<UnitEpoch>(in), .move = move};
      own.lsn = GetId<Lsn>(in);
      own.windows = GetWindows(in);
      return own;
    }
    case ControlKind::kRelease: {
      ReleaseRecord release;
      release.released.move = move;
      release.released.to = GetId<NodeId>(in);
      release.released.epoch = GetId<UnitEpoch>(in);
      release.lsn = GetId<Lsn>(in);
      release.touched = GetVersions(in);
      return release;
    }
    case ControlKind::kAbort:
      return AbortRecord{.move = move};
    case ControlKind::kTrim:
      return TrimRecord{.move = move};
    case ControlKind::kImport: {
      const auto source = GetId<NodeId>(in);
      return ImportRecord{.move = move, .source = source, .source_epoch = GetId<UnitEpoch>(in)};
    }
    case ControlKind::kDiscard:
      return DiscardRecord{.move = move};
    case ControlKind::kRelocate:
      return RelocateRecord{.move = move};
  }
  return std::nullopt;
}

}  // namespace

std::string EncodeAdoptedUnit(const AdoptedUnitRecord& record) {
  RecordWriter out;
  Put(record.unit, out);
  out.Put(ToInt(record.epoch));
  return std::move(out).Take();
}

absl::StatusOr<AdoptedUnitRecord> DecodeAdoptedUnit(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  AdoptedUnitRecord record;
  record.unit = GetUnit(in);
  record.epoch = GetId<UnitEpoch>(in);
  if (!in.at_end()) return DamagedUnit("adopted");
  return record;
}

std::string EncodeFoldedUnit(const FoldedUnitRecord& record) {
  RecordWriter out;
  Put(record.unit, out);
  out.Put(ToInt(record.plan));
  return std::move(out).Take();
}

absl::StatusOr<FoldedUnitRecord> DecodeFoldedUnit(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  FoldedUnitRecord record;
  record.unit = GetUnit(in);
  record.plan = GetId<PlanVersion>(in);
  if (!in.at_end() || record.plan == PlanVersion{}) return DamagedUnit("folded");
  return record;
}

std::string EncodeUnitAtRest(const RestoredUnit& record) {
  RecordWriter out;
  PutUnit(record, out);
  if (record.durable.left.has_value()) Put(*record.durable.left, out);
  return std::move(out).Take();
}

absl::StatusOr<RestoredUnit> DecodeUnitAtRest(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  RestoredUnit record = GetRestored(in);
  if (!in.at_end()) record.durable.left = GetReleased(in);
  record.staged.assign(record.durable.touched.size(), Lsn{0});
  if (!in.at_end()) return DamagedUnit("at rest");
  return record;
}

std::string EncodeUnitMoving(const RestoredUnit& record) {
  const UnitDurable& durable = record.durable;
  RecordWriter out;
  PutUnit(record, out);
  out.Put((durable.import.has_value() ? kHasImport : 0) |
          (durable.released.has_value() ? kIsReleased : 0) |
          (durable.left.has_value() ? kHasLeft : 0));
  if (durable.import.has_value()) {
    out.Put(ToInt(durable.import->move));
    out.Put(ToInt(durable.import->source));
    out.Put(ToInt(durable.import->source_epoch));
    out.Put(record.device);
    out.Put(record.run.row_begin);
    out.Put(record.run.row_end);
    Put(record.staged, out);
  }
  if (durable.released.has_value()) Put(*durable.released, out);
  if (durable.left.has_value()) Put(*durable.left, out);
  return std::move(out).Take();
}

absl::StatusOr<RestoredUnit> DecodeUnitMoving(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  RestoredUnit record = GetRestored(in);
  UnitDurable& durable = record.durable;
  record.staged.assign(durable.touched.size(), Lsn{0});
  const auto flags = in.Get<std::uint32_t>();
  if ((flags & kHasImport) != 0) {
    ImportState& import = durable.import.emplace();
    import.move = GetId<MoveId>(in);
    import.source = GetId<NodeId>(in);
    import.source_epoch = GetId<UnitEpoch>(in);
    record.has_memory = true;
    record.device = in.Get<std::uint32_t>();
    record.run.row_begin = in.Get<std::int64_t>();
    record.run.row_end = in.Get<std::int64_t>();
    record.staged = GetVersions(in);
  }
  if ((flags & kIsReleased) != 0) durable.released = GetReleased(in);
  if ((flags & kHasLeft) != 0) durable.left = GetReleased(in);
  const bool fits = (flags & ~(kHasImport | kIsReleased | kHasLeft)) == 0 && IsOnTheMove(record) &&
                    record.staged.size() == durable.touched.size();
  if (!in.at_end() || !fits) return DamagedUnit("moving");
  return record;
}

std::string EncodeReservedUnit(const ReservedUnitRecord& record) {
  RecordWriter out;
  Put(record.unit, out);
  out.Put(record.device);
  out.Put(record.run.row_begin);
  out.Put(record.run.row_end);
  return std::move(out).Take();
}

absl::StatusOr<ReservedUnitRecord> DecodeReservedUnit(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  ReservedUnitRecord record;
  record.unit = GetUnit(in);
  record.device = in.Get<std::uint32_t>();
  record.run.row_begin = in.Get<std::int64_t>();
  record.run.row_end = in.Get<std::int64_t>();
  if (!in.at_end()) return DamagedUnit("reserved");
  return record;
}

void PutChunkPiece(const ChunkPieceRecord& record, RecordWriter& out) {
  out.Reserve(64 + record.rows.size());
  Put(record.unit, out);
  out.Put(record.chunk.chunk);
  out.Put(ToInt(record.chunk.move));
  out.Put(ToInt(record.chunk.base));
  out.Put(ToInt(record.chunk.version));
  out.Put(record.chunk_bytes);
  out.Put(record.offset);
  out.Put(std::uint64_t{record.rows.size()});
  out.PutArray(record.rows);
}

absl::StatusOr<ChunkPieceRecord> DecodeChunkPiece(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  ChunkPieceRecord record;
  record.unit = GetUnit(in);
  record.chunk.chunk = in.Get<std::uint32_t>();
  record.chunk.move = GetId<MoveId>(in);
  record.chunk.base = GetId<Lsn>(in);
  record.chunk.version = GetId<Lsn>(in);
  record.chunk_bytes = in.Get<std::uint64_t>();
  record.offset = in.Get<std::uint64_t>();
  record.rows = in.GetArray<std::byte>(in.Get<std::uint64_t>());
  const bool fits = record.chunk_bytes <= kChunkBytesMax && record.offset <= record.chunk_bytes &&
                    record.rows.size() <= record.chunk_bytes - record.offset;
  if (!in.at_end() || !fits) return DamagedUnit("chunk");
  return record;
}

std::string EncodeUnitControl(const UnitId& unit, const LogRecord& record) {
  RecordWriter out;
  Put(unit, out);
  std::visit(ControlWriter(out), record);
  return std::move(out).Take();
}

absl::StatusOr<UnitControlRecord> DecodeUnitControl(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  UnitControlRecord record;
  record.unit = GetUnit(in);
  std::optional<LogRecord> control = GetControl(in);
  if (!in.at_end() || !control.has_value()) return DamagedUnit("control");
  record.record = *std::move(control);
  return record;
}

}  // namespace embla
