#include "server/log/log_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::string_view kSegmentMagic = "EMBLALOG";
constexpr std::uint32_t kFormat = 2;
constexpr std::string_view kRecordMagic = "EMBR";
constexpr std::size_t kSectorBytes = 512;
constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kHeaderCrcOffset = 4;
constexpr std::size_t kCheckedOffset = 8;  // The header's checksum covers what follows it.

// The header of a record as it lies in the file, behind the magic and the header's checksum.
struct RecordFields {
  std::uint32_t payload_crc = 0;  // Checksum of the payload as stored, with its padding.
  std::uint16_t kind = 0;
  std::uint8_t type = 0;
  std::uint8_t level = 0;
  std::uint64_t lsn = 0;
  std::uint32_t record_bytes = 0;
  std::uint32_t padding_bytes = 0;
  std::uint64_t durable_end = 0;
  std::uint64_t zero_parts = 0;  // One more than there are: no word of a header is zero.
};
static_assert(sizeof(RecordFields) == kRecordHeaderBytes - kCheckedOffset);

std::uint32_t Checksum(std::string_view bytes, std::uint32_t seed = 0) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())), seed);
}

template <typename Integer>
void Put(Integer value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename Integer>
Integer Get(std::string_view bytes, std::size_t offset) {
  Integer value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::size_t RoundUpToWords(std::size_t bytes) {
  return (bytes + kWordBytes - 1) / kWordBytes * kWordBytes;
}

bool IsZero(std::string_view bytes) {
  while (bytes.size() >= kWordBytes) {
    if (Get<std::uint64_t>(bytes, 0) != 0) return false;
    bytes.remove_prefix(kWordBytes);
  }
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

// Counts, of bytes from `offset` of a file on, the parts from one border of a sector, or of
// themselves, to the next that are nothing but zeros.
class ZeroParts {
 public:
  explicit ZeroParts(std::uint64_t offset) : at_(offset) {}

  void Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t size =
          std::min<std::size_t>(bytes.size(), kSectorBytes - at_ % kSectorBytes);
      is_zero_ = (is_zero_ || is_empty_) && IsZero(bytes.substr(0, size));
      is_empty_ = false;
      at_ += size;
      bytes.remove_prefix(size);
      if (at_ % kSectorBytes == 0) EndPart();
    }
  }
  std::uint64_t Count() {
    EndPart();
    return count_;
  }

 private:
  void EndPart() {
    count_ += is_zero_ && !is_empty_ ? 1 : 0;
    is_empty_ = true;
  }

  std::uint64_t at_;
  std::uint64_t count_ = 0;
  bool is_empty_ = true;  // Nothing of the current part was added.
  bool is_zero_ = false;
};

// None unless a record's header is at `offset` and intact.
std::optional<RecordFields> DecodeHeader(std::string_view content, std::size_t offset,
                                         std::uint32_t seed) {
  if (content.size() - offset < kRecordHeaderBytes) return std::nullopt;
  const std::string_view header = content.substr(offset, kRecordHeaderBytes);
  if (!header.starts_with(kRecordMagic)) return std::nullopt;
  if (Get<std::uint32_t>(header, kHeaderCrcOffset) !=
      Checksum(header.substr(kCheckedOffset), seed)) {
    return std::nullopt;
  }
  return Get<RecordFields>(header, kCheckedOffset);
}

// Whether content[begin, end) reaches behind the end, or has more parts that read as zeros than
// were written.
bool HasUnwrittenPart(std::string_view content, std::size_t begin, std::size_t end,
                      std::uint64_t zero_parts) {
  if (end > content.size()) return true;
  ZeroParts zeros(begin);
  zeros.Add(content.substr(begin, end - begin));
  return zeros.Count() > zero_parts;
}

// Whether a record behind `begin` says that the one with `next_lsn` or a later one was durable.
bool WasDurable(std::string_view content, std::size_t begin, LogLsn next_lsn, std::uint32_t seed) {
  for (std::size_t at = begin; at + kRecordHeaderBytes <= content.size(); at += kWordBytes) {
    const std::optional<RecordFields> fields = DecodeHeader(content, at, seed);
    if (fields && LogLsn{fields->durable_end} > next_lsn) return true;
  }
  return false;
}

const char* ProblemOf(const RecordFields& fields, LogLsn next_lsn) {
  const bool sized = fields.record_bytes >= kRecordHeaderBytes &&
                     fields.record_bytes % kWordBytes == 0 && fields.padding_bytes < kWordBytes &&
                     fields.padding_bytes <= fields.record_bytes - kRecordHeaderBytes;
  if (!sized) return "the record's size makes no sense";
  const bool typed = fields.type >= 1 && fields.type <= ToInt(LogRecordType::kMark) &&
                     fields.level >= 1 && fields.level <= ToInt(Durability::kSynced) &&
                     fields.zero_parts != 0;
  if (!typed) return "the record is of an unknown type";
  if (LogLsn{fields.lsn} < next_lsn) return "the record's LSN is not above the one before";
  if (fields.durable_end == 0 || fields.durable_end > fields.lsn) {
    return "the record says that later ones were durable";
  }
  return nullptr;
}

class Scanner {
 public:
  Scanner(std::string_view content, std::string_view file, const SegmentHeader& header)
      : content_(content), file_(file), seed_(SegmentSeed(header)) {
    scan_.header = header;
    scan_.valid_bytes = kSegmentHeaderBytes;
    scan_.next_lsn = header.first_lsn;
    scan_.last_crc = seed_;
  }

  bool at_end() const { return scan_.valid_bytes == content_.size(); }
  const SegmentScan& scan() const { return scan_; }

  // True: there was an intact record. False: the damaged record here was never written entirely.
  absl::StatusOr<bool> Next(const LogVisitor& visit) {
    const std::uint64_t begin = scan_.valid_bytes;
    const std::optional<RecordFields> fields = DecodeHeader(content_, begin, seed_);
    if (!fields) return Damaged(begin + kRecordHeaderBytes, "the record's header is damaged");
    if (const char* const problem = ProblemOf(*fields, scan_.next_lsn)) {
      return LogLoss(file_, begin, problem);
    }
    const std::uint64_t end = begin + fields->record_bytes;
    if (end > content_.size()) return Damaged(end, "the record is cut short");
    const std::string_view stored =
        content_.substr(begin + kRecordHeaderBytes, fields->record_bytes - kRecordHeaderBytes);
    if (Checksum(stored) != fields->payload_crc) {
      return Damaged(end, "the checksum of the record's payload does not match",
                     fields->zero_parts - 1);
    }
    EMBLA_RETURN_IF_ERROR(Take(*fields, stored, visit));
    scan_.last_crc = Get<std::uint32_t>(content_, begin + kHeaderCrcOffset);
    scan_.valid_bytes = end;
    return true;
  }

 private:
  // The record from valid_bytes to `end`, or its header, is damaged; `zero_parts` of it were
  // written as zeros.
  absl::StatusOr<bool> Damaged(std::uint64_t end, std::string_view problem,
                               std::uint64_t zero_parts = 0) const {
    const std::uint64_t begin = scan_.valid_bytes;
    if (!HasUnwrittenPart(content_, begin, end, zero_parts)) {
      return LogLoss(file_, begin, problem);
    }
    if (WasDurable(content_, begin + kWordBytes, scan_.next_lsn, seed_)) {
      return LogLoss(file_, begin,
                     absl::StrCat(ToAbsl(problem), ", and a later record says it was synced"));
    }
    return false;
  }

  absl::Status Take(const RecordFields& fields, std::string_view stored, const LogVisitor& visit) {
    ++scan_.records;
    scan_.next_lsn = LogLsn{fields.lsn + 1};
    const LogRecordType type{fields.type};
    const std::string_view payload = stored.substr(0, stored.size() - fields.padding_bytes);
    if (type == LogRecordType::kMark) {
      if (payload.size() != sizeof(LogLsn)) {
        return LogLoss(file_, scan_.valid_bytes, "the mark is not one LSN");
      }
      scan_.keep_from = std::max(scan_.keep_from, Get<LogLsn>(payload, 0));
    }
    if (!visit) return absl::OkStatus();
    return visit({LogLsn{fields.lsn}, type, Durability{fields.level}, fields.kind, payload});
  }

  const std::string_view content_;
  const std::string_view file_;
  const std::uint32_t seed_;
  SegmentScan scan_;
};

}  // namespace

absl::Status LogLoss(std::string_view file, std::uint64_t offset, std::string_view problem) {
  return absl::DataLossError(absl::StrCat(ToAbsl(file), " is corrupt at offset ", offset, ": ",
                                          ToAbsl(problem),
                                          "; restore the directory from a copy (docs/runbook.md)"));
}

std::size_t RecordBytes(std::size_t payload_bytes) {
  return kRecordHeaderBytes + RoundUpToWords(payload_bytes);
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string out(kSegmentMagic);
  Put(kFormat, &out);
  Put(header.previous_crc, &out);
  Put(header.log_id, &out);
  Put(header.number, &out);
  Put(header.first_lsn, &out);
  Put(header.previous_bytes, &out);
  Put(std::uint32_t{0}, &out);
  Put(Checksum(out), &out);
  return out;
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view content, std::string_view file) {
  if (content.size() < kSegmentHeaderBytes) {
    return LogLoss(file, 0, "the segment's header is cut short");
  }
  const std::string_view bytes = content.substr(0, kSegmentHeaderBytes);
  SegmentHeader header;
  header.previous_crc = Get<std::uint32_t>(bytes, 12);
  header.log_id = Get<std::uint64_t>(bytes, 16);
  header.number = Get<std::uint64_t>(bytes, 24);
  header.first_lsn = Get<LogLsn>(bytes, 32);
  header.previous_bytes = Get<std::uint64_t>(bytes, 40);
  if (bytes == EncodeSegmentHeader(header) && ToInt(header.first_lsn) > 0) return header;
  const auto format = Get<std::uint32_t>(bytes, kSegmentMagic.size());
  constexpr std::size_t kCheckedBytes = kSegmentHeaderBytes - sizeof(std::uint32_t);
  if (bytes.starts_with(kSegmentMagic) && format != kFormat &&
      Get<std::uint32_t>(bytes, kCheckedBytes) == Checksum(bytes.substr(0, kCheckedBytes))) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToAbsl(file), " is a log segment of format ", format,
                     ", this program reads and writes format ", kFormat,
                     ": start the program that wrote it, or begin with a new directory"));
  }
  return LogLoss(file, 0, "not the header of a log segment");
}

std::uint32_t SegmentSeed(const SegmentHeader& header) {
  return Get<std::uint32_t>(EncodeSegmentHeader(header),
                            kSegmentHeaderBytes - sizeof(std::uint32_t));
}

LogPayload LogPayload::Behind(std::string own, std::vector<View> views,
                              std::shared_ptr<const void> memory) {
  EMBLA_CHECK(own.size() >= kRecordHeaderBytes);
  LogPayload payload;
  payload.own_ = std::move(own);
  payload.views_ = std::move(views);
  payload.memory_ = std::move(memory);
  for (const View& view : payload.views_) payload.viewed_bytes_ += view.bytes.size();
  return payload;
}

// All of it in its order, the room for the header first.
template <typename Take>
void LogPayload::ForEachPiece(const Take& take) const {
  const std::string_view own = own_;
  std::size_t at = 0;
  for (const View& view : views_) {
    if (view.before > at) take(own.substr(at, view.before - at));
    if (!view.bytes.empty()) take(view.bytes);
    at = view.before;
  }
  if (at < own.size()) take(own.substr(at));
}

std::string LogPayload::content() const {
  std::string content;
  ForEachPiece([&](std::string_view piece) { content += piece; });
  return content.substr(kRecordHeaderBytes);
}

OutgoingRecord::OutgoingRecord(const LogRecordView& record, LogPayload payload)
    : payload_(std::move(payload)), payload_bytes_(payload_.size()) {
  RecordFields fields;
  fields.kind = record.kind;
  fields.type = ToInt(record.type);
  fields.level = ToInt(record.level);
  fields.record_bytes = static_cast<std::uint32_t>(bytes());
  fields.padding_bytes = static_cast<std::uint32_t>(bytes() - kRecordHeaderBytes - payload_bytes_);
  std::string& own = payload_.own_;
  own.append(fields.padding_bytes, '\0');
  kRecordMagic.copy(own.data(), kRecordMagic.size());
  std::memcpy(&own[kCheckedOffset], &fields, sizeof(fields));
}

std::uint32_t OutgoingRecord::Seal(const RecordSeal& seal) {
  std::string& own = payload_.own_;
  auto fields = Get<RecordFields>(own, kCheckedOffset);
  fields.lsn = ToInt(seal.lsn);
  fields.durable_end = ToInt(seal.durable_end);
  fields.payload_crc = 0;
  fields.zero_parts = 1;
  // No word of the header is zero from here on.
  std::memcpy(&own[kCheckedOffset], &fields, sizeof(fields));
  ZeroParts zeros(seal.offset);
  bool is_header = true;
  payload_.ForEachPiece([&](std::string_view piece) {
    zeros.Add(piece);
    if (is_header) piece.remove_prefix(kRecordHeaderBytes);
    is_header = false;
    fields.payload_crc = Checksum(piece, fields.payload_crc);
  });
  fields.zero_parts += zeros.Count();
  std::memcpy(&own[kCheckedOffset], &fields, sizeof(fields));
  const std::uint32_t crc =
      Checksum(std::string_view(own).substr(kCheckedOffset, sizeof(fields)), seal.seed);
  std::memcpy(&own[kHeaderCrcOffset], &crc, sizeof(crc));
  return crc;
}

void OutgoingRecord::AddPieces(std::vector<std::string_view>* pieces) const {
  payload_.ForEachPiece([&](std::string_view piece) { pieces->push_back(piece); });
}

std::string EncodeMark(LogLsn keep_from) {
  std::string payload;
  Put(keep_from, &payload);
  return payload;
}

absl::StatusOr<SegmentScan> ScanSegment(std::string_view content, std::string_view file,
                                        bool newest, const LogVisitor& visit) {
  EMBLA_ASSIGN_OR_RETURN(const SegmentHeader header, DecodeSegmentHeader(content, file));
  Scanner scanner(content, file, header);
  while (!scanner.at_end()) {
    EMBLA_ASSIGN_OR_RETURN(const bool intact, scanner.Next(visit));
    if (intact) continue;
    if (newest) break;
    return LogLoss(file, scanner.scan().valid_bytes, "the record was never written entirely");
  }
  return scanner.scan();
}

}  // namespace embla
