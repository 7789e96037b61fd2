#include "server/log/log_note.h"

#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "core/base/crc32c.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

constexpr std::string_view kMagic = "EMBLANEW";
constexpr std::uint32_t kNoteFormat = 1;

struct NoteFields {
  std::uint32_t format = kNoteFormat;
  std::uint32_t zero = 0;
  std::uint64_t log_id = 0;
  std::uint64_t segment = 0;
  std::uint64_t next_lsn = 0;
};
constexpr std::size_t kCheckedBytes = kMagic.size() + sizeof(NoteFields);

std::uint32_t NoteChecksum(std::string_view bytes) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

}  // namespace

std::string EncodeLogNote(const LogNote& note) {
  const NoteFields fields{
      .log_id = note.log_id, .segment = note.segment, .next_lsn = ToInt(note.next_lsn)};
  std::string content(kMagic);
  content.append(reinterpret_cast<const char*>(&fields), sizeof(fields));
  const std::uint32_t crc = NoteChecksum(content);
  content.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  return content;
}

absl::StatusOr<LogNote> DecodeLogNote(std::string_view content, std::string_view file) {
  NoteFields fields;
  std::uint32_t crc = 0;
  const bool has_all = content.size() == kCheckedBytes + sizeof(crc);
  if (has_all) {
    std::memcpy(&fields, content.data() + kMagic.size(), sizeof(fields));
    std::memcpy(&crc, content.data() + kCheckedBytes, sizeof(crc));
  }
  if (!has_all || !content.starts_with(kMagic) || fields.format != kNoteFormat ||
      crc != NoteChecksum(content.substr(0, kCheckedBytes))) {
    return LogLoss(file, 0, "it is no note of a log's newest segment");
  }
  return LogNote{fields.log_id, fields.segment, LogLsn{fields.next_lsn}};
}

absl::StatusOr<std::optional<LogNote>> ReadLogNote(const LogStorage& storage) {
  const std::string name(kNoteName);
  const absl::StatusOr<std::string> content = storage.Read(name);
  if (absl::IsNotFound(content.status())) return std::optional<LogNote>();
  if (!content.ok()) return content.status();
  EMBLA_ASSIGN_OR_RETURN(const LogNote note, DecodeLogNote(*content, storage.PathOf(name)));
  return std::optional<LogNote>(note);
}

absl::Status WriteLogNote(LogStorage& storage, const LogNote& note) {
  const std::string name(kNoteName);
  const std::string temporary = name + ".tmp";
  // Left by a process that died while writing it.
  EMBLA_RETURN_IF_ERROR(storage.Remove(temporary));
  {
    EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<LogFile> file, storage.Open(temporary, 0));
    EMBLA_RETURN_IF_ERROR(file->Append(EncodeLogNote(note)));
    EMBLA_RETURN_IF_ERROR(file->Sync());
  }
  EMBLA_RETURN_IF_ERROR(storage.Rename(temporary, name));
  return storage.SyncDirectory();
}

void NoteLog(LogStorage& storage, const LogNote& note) {
  const absl::Status noted = WriteLogNote(storage, note);
  if (!noted.ok()) LogWarning("log", "cannot note its newest segment: ", noted.message());
}

}  // namespace embla
