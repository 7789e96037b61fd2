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
constexpr std::uint32_t kFormat = 1;
constexpr std::string_view kRecordMagic = "EMBR";
constexpr std::size_t kSectorBytes = 512;
constexpr std::size_t kWordBytes = 8;
constexpr std::uint64_t kFirstBlank = 0x9e3779b97f4a7c15;  // Odd: its multiples visit every word.
constexpr std::size_t kHeaderCrcOffset = 4;
constexpr std::size_t kCheckedOffset = 8;  // The header's checksum covers what follows it.
constexpr std::size_t kLsnOffset = 16;
constexpr std::size_t kDurableEndOffset = 32;

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
  std::uint64_t blank = 0;  // Stands for zero in the stored payload.
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

// Puts `to` in the place of every word `from`; `words` is a multiple of 8 long.
void ReplaceWords(std::uint64_t from, std::uint64_t to, std::span<char> words) {
  for (std::size_t at = 0; at < words.size(); at += kWordBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, &words[at], kWordBytes);
    word = word == from ? to : word;  // Written in any case: compilers make vectors of that.
    std::memcpy(&words[at], &word, kWordBytes);
  }
}

bool HasWord(std::uint64_t word, std::string_view words) {
  bool has = false;
  for (std::size_t at = 0; at < words.size(); at += kWordBytes) {
    has |= Get<std::uint64_t>(words, at) == word;
  }
  return has;
}

// A word other than zero that `words` does not have.
std::uint64_t FindBlank(std::string_view words) {
  std::uint64_t blank = kFirstBlank;
  while (blank == 0 || HasWord(blank, words)) blank += kFirstBlank;
  return blank;
}

// Puts the word that FindBlank finds in the place of zeros, and returns it. Looks at every word
// once, but for a payload that has the first candidate.
std::uint64_t ReplaceZeros(std::span<char> words) {
  constexpr std::size_t kBlockBytes = 4096;
  for (std::size_t begin = 0; begin < words.size(); begin += kBlockBytes) {
    const std::span<char> block = words.subspan(begin, std::min(kBlockBytes, words.size() - begin));
    if (HasWord(kFirstBlank, {block.data(), block.size()})) {
      const std::uint64_t blank = FindBlank({words.data(), words.size()});
      ReplaceWords(kFirstBlank, blank, words.first(begin));
      ReplaceWords(0, blank, words.subspan(begin));
      return blank;
    }
    ReplaceWords(0, kFirstBlank, block);
  }
  return kFirstBlank;
}

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

// Whether content[begin, end) reaches behind the end or has a part that reads as zeros from one
// border of a sector, or of itself, to the next.
bool HasUnwrittenPart(std::string_view content, std::size_t begin, std::size_t end) {
  if (end > content.size()) return true;
  while (begin < end) {
    const std::size_t stop = std::min(end, (begin / kSectorBytes + 1) * kSectorBytes);
    const std::string_view part = content.substr(begin, stop - begin);
    if (part.find_first_not_of('\0') == std::string_view::npos) return true;
    begin = stop;
  }
  return false;
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
                     fields.blank != 0;
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
      return Damaged(end, "the checksum of the record's payload does not match");
    }
    EMBLA_RETURN_IF_ERROR(Take(*fields, stored, visit));
    scan_.last_crc = Get<std::uint32_t>(content_, begin + kHeaderCrcOffset);
    scan_.valid_bytes = end;
    return true;
  }

 private:
  // The record from valid_bytes to `end` is damaged.
  absl::StatusOr<bool> Damaged(std::uint64_t end, std::string_view problem) const {
    const std::uint64_t begin = scan_.valid_bytes;
    if (!HasUnwrittenPart(content_, begin, end)) return LogLoss(file_, begin, problem);
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
    if (!visit && type != LogRecordType::kMark) return absl::OkStatus();
    payload_.assign(stored);
    ReplaceWords(fields.blank, 0, payload_);
    payload_.resize(stored.size() - fields.padding_bytes);
    if (type == LogRecordType::kMark) {
      if (payload_.size() != sizeof(LogLsn)) {
        return LogLoss(file_, scan_.valid_bytes, "the mark is not one LSN");
      }
      scan_.keep_from = std::max(scan_.keep_from, Get<LogLsn>(payload_, 0));
    }
    if (!visit) return absl::OkStatus();
    return visit({LogLsn{fields.lsn}, type, Durability{fields.level}, fields.kind, payload_});
  }

  const std::string_view content_;
  const std::string_view file_;
  const std::uint32_t seed_;
  SegmentScan scan_;
  std::string payload_;
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
  return LogLoss(file, 0, "not the header of a log segment of format 1");
}

std::uint32_t SegmentSeed(const SegmentHeader& header) {
  return Get<std::uint32_t>(EncodeSegmentHeader(header),
                            kSegmentHeaderBytes - sizeof(std::uint32_t));
}

LogPayload LogPayload::Behind(std::string bytes) {
  EMBLA_CHECK(bytes.size() >= kRecordHeaderBytes);
  LogPayload payload;
  payload.bytes_ = std::move(bytes);
  return payload;
}

std::string EncodeRecord(const LogRecordView& record, LogPayload payload) {
  const std::size_t content_bytes = payload.size();
  std::string out = std::move(payload).Take();
  out.resize(RecordBytes(content_bytes), '\0');
  const std::span<char> stored = std::span(out).subspan(kRecordHeaderBytes);
  RecordFields fields;
  fields.blank = ReplaceZeros(stored);
  fields.payload_crc = Checksum({stored.data(), stored.size()});
  fields.kind = record.kind;
  fields.type = ToInt(record.type);
  fields.level = ToInt(record.level);
  fields.record_bytes = static_cast<std::uint32_t>(out.size());
  fields.padding_bytes = static_cast<std::uint32_t>(stored.size() - content_bytes);
  kRecordMagic.copy(out.data(), kRecordMagic.size());
  std::memcpy(&out[kCheckedOffset], &fields, sizeof(fields));
  return out;
}

std::uint32_t SealLogRecord(const RecordSeal& seal, std::span<char> record) {
  std::memcpy(&record[kLsnOffset], &seal.lsn, sizeof(seal.lsn));
  std::memcpy(&record[kDurableEndOffset], &seal.durable_end, sizeof(seal.durable_end));
  const std::string_view header(record.data(), kRecordHeaderBytes);
  const std::uint32_t crc = Checksum(header.substr(kCheckedOffset), seal.seed);
  std::memcpy(&record[kHeaderCrcOffset], &crc, sizeof(crc));
  return crc;
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
