// A mover's records (server/mover/move_log.h) in a node's journal; the bytes are those of
// docs/journal_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/journal/record_bytes.h"
#include "server/migration/move_ids.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_state.h"
#include "server/mover/restored_unit.h"

namespace embla {

struct AdoptedUnitRecord {
  UnitId unit;
  UnitEpoch epoch{};
};
struct FoldedUnitRecord {
  UnitId unit;
  PlanVersion plan{};
};
struct ReservedUnitRecord {
  UnitId unit;
  std::uint32_t device = 0;
  RowRun run;
};
// A unit at rest, or none of whose rows are here, in a snapshot: without import or room.
std::string EncodeUnitAtRest(const RestoredUnit& record);
absl::StatusOr<RestoredUnit> DecodeUnitAtRest(std::span<const std::byte> bytes);
// One that is coming in, or was handed over and is kept.
inline bool IsOnTheMove(const RestoredUnit& unit) {
  return unit.durable.import.has_value() || unit.durable.released.has_value();
}
std::string EncodeUnitMoving(const RestoredUnit& record);
absl::StatusOr<RestoredUnit> DecodeUnitMoving(std::span<const std::byte> bytes);

inline constexpr std::uint64_t kChunkBytesMax = std::uint64_t{1} << 31;

// A piece of a chunk: the record of a whole one could be too long. The pieces of a chunk follow
// each other, but for records of other units; one that begins again replaces what there was.
struct ChunkPieceRecord {
  UnitId unit;
  Chunk chunk;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t offset = 0;
  std::span<const std::byte> rows;
};
struct UnitControlRecord {
  UnitId unit;
  LogRecord record;
};

std::string EncodeAdoptedUnit(const AdoptedUnitRecord& record);
std::string EncodeFoldedUnit(const FoldedUnitRecord& record);
std::string EncodeReservedUnit(const ReservedUnitRecord& record);
// Adds the record to `out`.
void PutChunkPiece(const ChunkPieceRecord& record, RecordWriter& out);
// Requires: not an AppliedUpdate.
std::string EncodeUnitControl(const UnitId& unit, const LogRecord& record);

// DataLoss: not such a record. A piece's rows view `bytes`.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<AdoptedUnitRecord> DecodeAdoptedUnit(std::span<const std::byte> bytes);
absl::StatusOr<FoldedUnitRecord> DecodeFoldedUnit(std::span<const std::byte> bytes);
absl::StatusOr<ReservedUnitRecord> DecodeReservedUnit(std::span<const std::byte> bytes);
absl::StatusOr<ChunkPieceRecord> DecodeChunkPiece(std::span<const std::byte> bytes);
absl::StatusOr<UnitControlRecord> DecodeUnitControl(std::span<const std::byte> bytes);

}  // namespace embla
