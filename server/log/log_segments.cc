#include "server/log/log_segments.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "server/log/log_note.h"

namespace embla {
namespace {

constexpr std::string_view kSegmentPrefix = "log-";
constexpr std::size_t kNumberDigits = 20;

// An error behind which nobody knows what the disk has, even if it is for want of room.
absl::Status Final(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(status.message());
}

}  // namespace

std::string SegmentName(std::uint64_t number) { return absl::StrFormat("log-%020u", number); }

std::optional<std::uint64_t> SegmentNumber(std::string_view name) {
  if (name.size() != kSegmentPrefix.size() + kNumberDigits || !name.starts_with(kSegmentPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kSegmentPrefix.size());
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return number;
}

LogSegments::LogSegments(LogStorage& storage, std::uint64_t segment_bytes_max,
                         const std::optional<SegmentScan>& newest)
    : storage_(storage), segment_bytes_max_(segment_bytes_max), is_new_(!newest) {
  if (!newest) {
    header_.log_id = RandomId64();
    return;
  }
  header_ = newest->header;
  seed_ = SegmentSeed(header_);
  last_crc_ = newest->last_crc;
  start_lsn_ = newest->next_lsn;
  start_bytes_ = newest->valid_bytes;
}

absl::Status LogSegments::Start() {
  EMBLA_RETURN_IF_ERROR(storage_.Remove(std::string(kSpareName)));  // May be half of a header.
  if (is_new_) {
    EMBLA_RETURN_IF_ERROR(Rotate(LogLsn{1}));
    Note(LogLsn{1});
    return absl::OkStatus();
  }
  const std::string name = SegmentName(header_.number);
  absl::StatusOr<std::unique_ptr<LogFile>> file = storage_.Open(name, segment_bytes_max_);
  // A full disk must not keep a node from starting: Write finds out how much still fits.
  if (absl::IsResourceExhausted(file.status())) file = storage_.Open(name, 0);
  EMBLA_ASSIGN_OR_RETURN(current_, std::move(file));
  if (current_->size() > start_bytes_) EMBLA_RETURN_IF_ERROR(current_->Truncate(start_bytes_));
  // Writes of a dead process, and the name of a segment it began, may still be in memory only.
  EMBLA_RETURN_IF_ERROR(current_->Sync());
  EMBLA_RETURN_IF_ERROR(storage_.SyncDirectory());
  Note(start_lsn_);
  return absl::OkStatus();
}

void LogSegments::Note(LogLsn next_lsn) {
  NoteLog(storage_, {header_.log_id, header_.number, next_lsn});
}

bool LogSegments::Fits(std::size_t bytes) const {
  return !full_ && current_->size() + bytes <= segment_bytes_max_;
}

absl::Status LogSegments::EnsureSpare() {
  if (spare_) return absl::OkStatus();
  const std::string name(kSpareName);
  absl::StatusOr<std::unique_ptr<LogFile>> spare = storage_.Open(name, segment_bytes_max_);
  if (!spare.ok()) {
    // Gives back what was taken; a spare that stays is overwritten or removed later.
    static_cast<void>(storage_.Remove(name));
    return std::move(spare).status();
  }
  spare_ = *std::move(spare);
  return absl::OkStatus();
}

absl::Status LogSegments::Rotate(LogLsn first_lsn) {
  EMBLA_RETURN_IF_ERROR(EnsureSpare());
  SegmentHeader next{header_.log_id, header_.number + 1, first_lsn, current_ ? current_->size() : 0,
                     last_crc_};
  absl::Status begun = spare_->Append(EncodeSegmentHeader(next));
  if (begun.ok()) {
    EMBLA_RETURN_IF_ERROR(Final(spare_->Sync()));
    begun = storage_.Rename(std::string(kSpareName), SegmentName(next.number));
  }
  if (absl::IsResourceExhausted(begun)) {
    EMBLA_RETURN_IF_ERROR(Final(spare_->Truncate(0)));
    EMBLA_RETURN_IF_ERROR(Final(spare_->Sync()));
  }
  EMBLA_RETURN_IF_ERROR(begun);
  EMBLA_RETURN_IF_ERROR(Final(storage_.SyncDirectory()));
  header_ = next;
  seed_ = SegmentSeed(header_);
  last_crc_ = seed_;
  current_ = std::move(spare_);
  full_ = false;
  return absl::OkStatus();
}

absl::Status LogSegments::Write(std::size_t bytes, LogFile::Source next,
                                const std::uint32_t& last_crc) {
  const std::uint64_t end = current_->size();
  const absl::Status written = current_->Append(bytes, next);
  if (written.ok()) {
    last_crc_ = last_crc;
    return absl::OkStatus();
  }
  if (!absl::IsResourceExhausted(written)) return written;
  full_ = true;
  // The beginning must be gone from the disk before anything is written over it: sectors that mix
  // the two would look like neither.
  EMBLA_RETURN_IF_ERROR(Final(current_->Truncate(end)));
  EMBLA_RETURN_IF_ERROR(Final(current_->Sync()));
  return written;
}

}  // namespace embla
