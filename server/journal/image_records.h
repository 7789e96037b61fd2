// The records of a snapshot: a node's image, then the rows of its windows. docs/snapshots.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "server/journal/record_bytes.h"
#include "server/shard/node_image.h"

namespace embla {

inline constexpr std::uint32_t kSnapshotFormat = 2;
// Most bytes of the rows of a window on one device.
inline constexpr std::uint64_t kWindowBytesMax = std::uint64_t{1} << 33;

// The first record of a snapshot. The records behind it have the plan, the closed sessions, the
// tables and the units.
struct ImageRecord {
  std::uint64_t number = 0;       // The snapshot's.
  std::uint64_t base = 0;         // The first snapshot of its chain, which has all rows; may be it.
  std::uint64_t position = 0;     // The journal's first record that is not in the image.
  std::uint64_t log_process = 0;  // The process that made it.
  absl::Time time;
  std::vector<SessionGate::Seen> sessions;
};

// Behind the record of a table: where its rows are, by replica group.
struct PlacesRecord {
  TableId table{};
  std::vector<std::vector<PlacedRows>> places;
};

// A piece of the rows that one device had of a window. The pieces of rows follow each other.
struct RowsRecord {
  RowWindow window;
  std::uint32_t replica_group = 0;
  std::uint64_t position = 0;  // The journal's first record that is not in the rows.
  std::uint64_t rows_bytes = 0;
  std::uint64_t offset = 0;
  std::span<const std::byte> piece;
};

// The last record: a snapshot without it was never complete.
struct ImageEndRecord {
  std::uint64_t records = 0;  // Records before this one.
};

std::string EncodeImage(const ImageRecord& record);
// Without the table's places.
std::string EncodeTableImage(const TableImage& record);
std::string EncodePlaces(const PlacesRecord& record);
// Adds the record to `out`.
void PutRows(const RowsRecord& record, RecordWriter& out);
std::string EncodeImageEnd(const ImageEndRecord& record);

// DataLoss: not such a record. FailedPrecondition: of a newer program. A piece views `bytes`.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<ImageRecord> DecodeImage(std::span<const std::byte> bytes);
absl::StatusOr<TableImage> DecodeTableImage(std::span<const std::byte> bytes);
// The devices' node is 0: it is the image's.
absl::StatusOr<PlacesRecord> DecodePlaces(std::span<const std::byte> bytes);
absl::StatusOr<RowsRecord> DecodeRows(std::span<const std::byte> bytes);
absl::StatusOr<ImageEndRecord> DecodeImageEnd(std::span<const std::byte> bytes);

}  // namespace embla
