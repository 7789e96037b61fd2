// The bytes of a node's log; page: docs/node_log.md.
//
// A segment is a header, then records. Bytes become durable in order of syncs, but between two
// syncs the disk may keep any of the 512-byte sectors written since and lose the others; what it
// lost reads as zeros or lies behind the end of the file. Telling such a torn tail from corruption
// rests on two facts of every record:
//   - it says how many of its sectors are nothing but zeros, of a sector that it shares with others
//     its own part: a damaged record with more of them was never written entirely, one without
//     was. Its header has no such part, as none of the header's 8-byte words is zero;
//   - it says which records were durable when it was written: damage to one of those is corruption.
// So a payload is stored as it is, and written from where it lies (LogPayload).
// Covered by log_format_test.cc: a cut at every byte, a flip of every bit, lost sectors.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla {

// The order of a node's records, from 1; rises, with gaps where records were refused.
enum class LogLsn : std::uint64_t {};

enum class LogRecordType : std::uint8_t {
  kUpdate = 1,   // Changes of rows; opaque.
  kControl = 2,  // Records of the node's protocols; opaque, always synced.
  kMark = 3,     // The log's own: the LSN below which nothing is needed any more.
};

// Guarantees for a record before it is acknowledged: levels W0 to W3.
enum class Durability : std::uint8_t {
  kNone = 0,     // Nothing: the record is not logged.
  kQueued = 1,   // The record is in the log's queue: survives a clean stop.
  kWritten = 2,  // The operating system has it: survives the death of the process.
  kSynced = 3,   // The disk has it: survives the loss of power.
};

struct LogRecordView {
  LogLsn lsn{};
  LogRecordType type = LogRecordType::kUpdate;
  Durability level = Durability::kSynced;
  std::uint16_t kind = 0;  // The writer's; of control records: which.
  std::string_view payload = {};
};

struct SegmentHeader {
  std::uint64_t log_id = 0;          // The same in all segments of a log.
  std::uint64_t number = 0;          // From 1, without gaps.
  LogLsn first_lsn{};                // Records before are in the segments before.
  std::uint64_t previous_bytes = 0;  // Size of the segment before; 0 in the first.
  std::uint32_t previous_crc = 0;    // SegmentScan::last_crc of the segment before.
};

inline constexpr std::size_t kSegmentHeaderBytes = 56;
inline constexpr std::size_t kRecordHeaderBytes = 48;

// 48 + the payload, rounded up to 8.
std::size_t RecordBytes(std::size_t payload_bytes);

std::string EncodeSegmentHeader(const SegmentHeader& header);
// DataLoss names `file`.
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view content, std::string_view file);
// The checksum of `header`: records are checked together with it, so that none is taken for one of
// another segment.
std::uint32_t SegmentSeed(const SegmentHeader& header);

// Where and when a record is written.
struct RecordSeal {
  std::uint32_t seed = 0;    // The segment's seed.
  std::uint64_t offset = 0;  // The record's, in the segment's file; a multiple of 8.
  LogLsn lsn{};
  LogLsn durable_end{1};  // All records below are synced; at most `lsn`.
};

// The content of a record, behind room for its header: bytes of its own, and between them views of
// memory that it keeps, which a log writes from where they are.
class LogPayload {
 public:
  // Content that lies elsewhere, and the offset of the own byte that follows it.
  struct View {
    std::size_t before = 0;
    std::string_view bytes;
  };

  LogPayload() : own_(kRecordHeaderBytes, '\0') {}
  template <std::convertible_to<std::string_view> Text>
  LogPayload(const Text& content)  // A copy. NOLINT(google-explicit-constructor)
      : own_(kRecordHeaderBytes, '\0') {
    own_ += std::string_view(content);
  }
  // `own` begins with kRecordHeaderBytes that the header will take. `memory` keeps what `views`
  // show, which nobody changes; they are in the order of their places.
  static LogPayload Behind(std::string own, std::vector<View> views = {},
                           std::shared_ptr<const void> memory = nullptr);

  std::size_t size() const { return own_.size() + viewed_bytes_ - kRecordHeaderBytes; }
  std::string content() const;  // In one piece: a copy.

 private:
  friend class OutgoingRecord;
  template <typename Take>
  void ForEachPiece(const Take& take) const;

  std::string own_;
  std::vector<View> views_;
  std::size_t viewed_bytes_ = 0;
  std::shared_ptr<const void> memory_;
};

// A record on its way into a segment.
class OutgoingRecord {
 public:
  OutgoingRecord() = default;
  // Takes type, level and kind of `record`, and nothing else.
  OutgoingRecord(const LogRecordView& record, LogPayload payload);

  std::size_t bytes() const { return RecordBytes(payload_bytes_); }
  // Makes the record valid at one place, which may be another one later. Returns the checksum of
  // its header. Reads all of it.
  std::uint32_t Seal(const RecordSeal& seal);
  // Adds the sealed record in pieces, which live as long as this object.
  void AddPieces(std::vector<std::string_view>* pieces) const;

 private:
  LogPayload payload_;  // With the padding.
  std::size_t payload_bytes_ = 0;
};

std::string EncodeMark(LogLsn keep_from);

// The error for a damaged file of a log: DataLoss with its name, the offset and what to do.
absl::Status LogLoss(std::string_view file, std::uint64_t offset, std::string_view problem);

// The payload lives as long as the call, and is aligned to 8 if the segment is.
using LogVisitor = std::function<absl::Status(const LogRecordView&)>;

struct SegmentScan {
  SegmentHeader header;
  std::uint64_t valid_bytes = 0;  // After them comes a torn tail, or the end of the file.
  std::uint64_t records = 0;
  LogLsn next_lsn{};  // Above all of its records, at least header.first_lsn.
  // CRC of the last record's header; of the segment's header without records.
  std::uint32_t last_crc = 0;
  LogLsn keep_from{};  // The highest of its marks; 0 without.
};

// Visits the intact records of a whole segment in order. Only the newest segment of a log may have
// a torn tail (`newest`). DataLoss names `file`, the offset and what is wrong; errors of `visit`
// are returned as they are. Without `visit` they are checked, and that is all.
absl::StatusOr<SegmentScan> ScanSegment(std::string_view content, std::string_view file,
                                        bool newest, const LogVisitor& visit);

}  // namespace embla
