#include "server/state_store/state_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/crc32c.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::string_view kLogMagic = "EMBLASTL";
constexpr std::string_view kSnapshotMagic = "EMBLASTS";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kFileHeaderBytes = 16;
constexpr std::string_view kFrameMagic = "EMBF";
constexpr std::size_t kFrameHeaderBytes = 24;
constexpr char kFrameEnd = '\n';
constexpr std::size_t kSectorBytes = 512;
enum : std::uint8_t { kDelete = 1, kPut = 2 };

std::uint32_t Checksum(std::string_view bytes) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

template <typename Integer>
void Put(Integer value, std::string* out) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}

void PutText(std::string_view text, std::string* out) {
  Put(static_cast<std::uint32_t>(text.size()), out);
  out->append(text);
}

// Reads what Put wrote; after running over the end everything is empty and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <typename Integer>
  Integer Take() {
    Integer value{};
    const std::string_view bytes = TakeBytes(sizeof(value));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string_view TakeBytes(std::size_t size) {
    ok_ = ok_ && size <= left_.size();
    if (!ok_) return {};
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }
  std::string TakeText() { return std::string(TakeBytes(Take<std::uint32_t>())); }

  bool ok() const { return ok_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

absl::Status Corrupt(std::string_view file, std::size_t offset, std::string_view problem) {
  return absl::DataLossError(
      absl::StrCat(ToAbsl(file), " is corrupt at offset ", offset, ": ", ToAbsl(problem),
                   "; restore the directory from a backup (docs/runbook.md)"));
}

std::string FileHeader(std::string_view magic) {
  std::string header(magic);
  Put(kFormat, &header);
  Put(Checksum(header), &header);
  return header;
}

absl::Status CheckFileHeader(std::string_view content, std::string_view magic,
                             std::string_view file) {
  if (content.substr(0, kFileHeaderBytes) == FileHeader(magic)) return absl::OkStatus();
  return Corrupt(file, 0, "not the header of a state file of format 1");
}

struct FrameHeader {
  std::uint32_t payload_bytes = 0;
  Revision revision{};
  std::uint32_t payload_crc = 0;

  // With the header and the end byte.
  std::size_t frame_bytes() const { return kFrameHeaderBytes + payload_bytes + 1; }
};

// None unless `bytes` begins with an intact header.
std::optional<FrameHeader> DecodeFrameHeader(std::string_view bytes) {
  if (bytes.size() < kFrameHeaderBytes || !bytes.starts_with(kFrameMagic)) return std::nullopt;
  ByteReader reader(bytes.substr(kFrameMagic.size()));
  FrameHeader header;
  header.payload_bytes = reader.Take<std::uint32_t>();
  header.revision = Revision{reader.Take<std::uint64_t>()};
  header.payload_crc = reader.Take<std::uint32_t>();
  const auto crc = reader.Take<std::uint32_t>();
  if (crc != Checksum(bytes.substr(0, kFrameHeaderBytes - sizeof(crc)))) return std::nullopt;
  return header;
}

// Whether some sector's part of content[begin..] is all zero.
bool HasUnwrittenSector(std::string_view content, std::size_t begin) {
  while (begin < content.size()) {
    const std::size_t end = std::min(content.size(), (begin / kSectorBytes + 1) * kSectorBytes);
    const std::string_view piece = content.substr(begin, end - begin);
    if (piece.find_first_not_of('\0') == std::string_view::npos) return true;
    begin = end;
  }
  return false;
}

bool HasFrameBehind(std::string_view content, std::size_t begin) {
  for (std::size_t at = content.find(kFrameMagic, begin); at != std::string_view::npos;
       at = content.find(kFrameMagic, at + 1)) {
    if (DecodeFrameHeader(content.substr(at))) return true;
  }
  return false;
}

// The frame at `offset` is bad. OK: it is the torn end of a crash.
absl::Status CheckTorn(std::string_view content, std::size_t offset, std::string_view file) {
  const std::string_view rest = content.substr(offset);
  if (rest.size() < kFrameHeaderBytes) return absl::OkStatus();
  const std::optional<FrameHeader> header = DecodeFrameHeader(rest);
  if (header && header->frame_bytes() > rest.size()) return absl::OkStatus();
  const char* const problem =
      header ? "the checksum of the commit does not match" : "the frame header is damaged";
  const bool last =
      header ? header->frame_bytes() == rest.size() : !HasFrameBehind(content, offset + 1);
  if (last && HasUnwrittenSector(content, offset)) return absl::OkStatus();
  return Corrupt(file, offset, problem);
}

// The frame at the start of `bytes`; none when it is not intact.
std::optional<StateFrame> DecodeFrame(std::string_view bytes, std::size_t* size) {
  const std::optional<FrameHeader> header = DecodeFrameHeader(bytes);
  if (!header || header->frame_bytes() > bytes.size()) return std::nullopt;
  const std::string_view payload = bytes.substr(kFrameHeaderBytes, header->payload_bytes);
  if (Checksum(payload) != header->payload_crc || bytes[header->frame_bytes() - 1] != kFrameEnd) {
    return std::nullopt;
  }
  StateFrame frame{header->revision, {}};
  ByteReader reader(payload);
  const auto count = reader.Take<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto kind = reader.Take<std::uint8_t>();
    StateWrite& write = frame.writes.emplace_back();
    write.key = reader.TakeText();
    if (kind == kPut) write.value = reader.TakeText();
    if (kind != kPut && kind != kDelete) return std::nullopt;
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  *size = header->frame_bytes();
  return frame;
}

}  // namespace

std::string EncodeStateLogHeader() { return FileHeader(kLogMagic); }

std::string EncodeStateFrame(Revision revision, std::span<const StateWrite> writes) {
  std::string payload;
  Put(static_cast<std::uint32_t>(writes.size()), &payload);
  for (const StateWrite& write : writes) {
    Put(static_cast<std::uint8_t>(write.value ? kPut : kDelete), &payload);
    PutText(write.key, &payload);
    if (write.value) PutText(*write.value, &payload);
  }
  std::string frame(kFrameMagic);
  Put(static_cast<std::uint32_t>(payload.size()), &frame);
  Put(static_cast<std::uint64_t>(revision), &frame);
  Put(Checksum(payload), &frame);
  Put(Checksum(frame), &frame);
  frame += payload;
  frame += kFrameEnd;
  return frame;
}

absl::StatusOr<StateLogContent> DecodeStateLog(std::string_view content, std::string_view file) {
  EMBLA_RETURN_IF_ERROR(CheckFileHeader(content, kLogMagic, file));
  StateLogContent log;
  std::size_t offset = kFileHeaderBytes;
  while (offset < content.size()) {
    std::size_t size = 0;
    std::optional<StateFrame> frame = DecodeFrame(content.substr(offset), &size);
    if (!frame) {
      EMBLA_RETURN_IF_ERROR(CheckTorn(content, offset, file));
      break;
    }
    log.frames.push_back(*std::move(frame));
    offset += size;
  }
  log.valid_bytes = offset;
  return log;
}

std::string EncodeStateSnapshot(const StateSnapshot& snapshot) {
  std::string out = FileHeader(kSnapshotMagic);
  Put(static_cast<std::uint64_t>(snapshot.revision), &out);
  Put(static_cast<std::uint64_t>(snapshot.entries.size()), &out);
  for (const StateEntry& entry : snapshot.entries) {
    Put(static_cast<std::uint64_t>(entry.revision), &out);
    PutText(entry.key, &out);
    PutText(entry.value, &out);
  }
  Put(Checksum(out), &out);
  return out;
}

absl::StatusOr<StateSnapshot> DecodeStateSnapshot(std::string_view content, std::string_view file) {
  EMBLA_RETURN_IF_ERROR(CheckFileHeader(content, kSnapshotMagic, file));
  constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);
  if (content.size() < kFileHeaderBytes + kCrcBytes) {
    return Corrupt(file, content.size(), "the snapshot is cut short");
  }
  const std::string_view body = content.substr(0, content.size() - kCrcBytes);
  ByteReader crc(content.substr(body.size()));
  if (crc.Take<std::uint32_t>() != Checksum(body)) {
    return Corrupt(file, kFileHeaderBytes, "the checksum of the snapshot does not match");
  }
  StateSnapshot snapshot;
  ByteReader reader(body.substr(kFileHeaderBytes));
  snapshot.revision = Revision{reader.Take<std::uint64_t>()};
  const auto count = reader.Take<std::uint64_t>();
  for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
    StateEntry& entry = snapshot.entries.emplace_back();
    entry.revision = Revision{reader.Take<std::uint64_t>()};
    entry.key = reader.TakeText();
    entry.value = reader.TakeText();
  }
  if (reader.ok() && reader.at_end()) return snapshot;
  return Corrupt(file, kFileHeaderBytes, "the entries do not add up to the snapshot's size");
}

}  // namespace embla
