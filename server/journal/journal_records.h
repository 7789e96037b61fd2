// The kinds of a node's records, and those of the node as a whole; docs/journal_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/plan_delta.h"
#include "server/journal/record_bytes.h"
#include "server/migration/session_set.h"
#include "server/shard/decision.h"

namespace embla {

// Numbers are part of the format.
enum class JournalKind : std::uint16_t {
  kProcess = 1,          // A process opened the log.
  kPlan = 2,             // Tables and hyper-parameters from here on, as older programs wrote it.
  kUpdate = 3,           // server/journal/update_record.h
  kBefore = 4,           // DecidedBefore; no content.
  kSync = 5,             // All that is here of replica groups is averaged. Written no more.
  kAdopted = 6,          // server/journal/unit_records.h, to the end
  kReserved = 7,         //
  kChunk = 8,            //
  kControl = 9,          //
  kSweep = 10,           // Ids of a ZCH table lose their rows.
  kClosedSessions = 11,  // Sessions whose updates are refused from here on.
  kAveraged = 12,        // Rows of replica groups are averaged.
  kCopied = 13,          // server/journal/copied_record.h
  kStep = 14,            // A synchronous step: server/journal/update_record.h
  kFolded = 20,          // server/journal/unit_records.h
  kPlanDelta = 21,       // Changes of the plan since the last record of one.
  kImage = 30,           // server/journal/image_records.h, to the end: of snapshots only
  kTableImage = 31,      //
  kUnitAtRest = 32,      //
  kRows = 33,            //
  kImageEnd = 34,        //
  kUnitMoving = 35,      //
  kPlaces = 36,          //
};

inline constexpr std::uint32_t kJournalFormat = 2;
// Most bytes of moved, or copied, rows in one record: a group of the log's writer has room for it.
inline constexpr std::size_t kPieceBytesMax = std::size_t{2} << 20;

struct ProcessRecord {
  std::uint64_t log_process = 0;  // The log's process number: 1 for its first process.
};
struct SyncRecord {
  std::vector<TableId> tables;
};

void PutSweep(const DecidedSweep& sweep, RecordWriter& out);
void PutAveraged(const DecidedSync& sync, RecordWriter& out);
std::string EncodeClosedSessionsRecord(const ClosedSessions& closed);
std::string EncodeProcessRecord(const ProcessRecord& record);
// The plan that is installed next is the one before with `delta`.
std::string EncodePlanDeltaRecord(NodeId self, const PlanDelta& delta);
std::string EncodeSyncRecord(std::span<const TableId> tables);

// DataLoss: not such a record. FailedPrecondition: of a newer program.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<ProcessRecord> DecodeProcessRecord(std::span<const std::byte> bytes);
absl::StatusOr<InstalledPlan> DecodePlanRecord(std::span<const std::byte> bytes);
absl::StatusOr<InstalledPlan> DecodePlanDeltaRecord(std::span<const std::byte> bytes,
                                                    const Plan& before);
absl::StatusOr<SyncRecord> DecodeSyncRecord(std::span<const std::byte> bytes);
absl::StatusOr<DecidedSync> DecodeAveragedRecord(std::span<const std::byte> bytes);
absl::StatusOr<DecidedSweep> DecodeSweepRecord(std::span<const std::byte> bytes);
absl::StatusOr<ClosedSessions> DecodeClosedSessionsRecord(std::span<const std::byte> bytes);

}  // namespace embla
