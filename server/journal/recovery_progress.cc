#include "server/journal/recovery_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/byte_text.h"
#include "core/base/clock.h"

namespace embla {

double JournalProgress::share() const {
  if (directory_bytes == 0) return 0;
  return std::min(1.0, static_cast<double>(read_bytes) / static_cast<double>(directory_bytes));
}

std::string JournalProgress::Text() const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const double rate = seconds > 0 ? static_cast<double>(read_bytes) / seconds : 0;
  const auto bytes = [](double count) { return FormatBytes(static_cast<std::int64_t>(count)); };
  if (directory_bytes == 0) {
    return absl::StrCat(bytes(static_cast<double>(read_bytes)), ", read at ", bytes(rate), "/s");
  }
  std::string text =
      absl::StrCat(static_cast<int>(100 * share()), " % of ",
                   bytes(static_cast<double>(directory_bytes)), ", read at ", bytes(rate), "/s");
  if (rate <= 0) return text;
  const double left = static_cast<double>(directory_bytes) * (1 - share());
  absl::StrAppend(&text, ", about ", static_cast<std::int64_t>(left / rate) + 1, " s left");
  return text;
}

RecoveryProgress::RecoveryProgress(std::uint64_t directory_bytes, absl::Duration every, Tell tell)
    : every_(every), tell_(std::move(tell)), start_(Clock::Real().Now()), told_(start_) {
  progress_.directory_bytes = directory_bytes;
}

void RecoveryProgress::SetGauges(const Gauge& share, const Gauge& applied_bytes) {
  const MutexLock lock(mu_);
  share_ = share;
  applied_bytes_ = applied_bytes;
}

template <typename Note>
void RecoveryProgress::Take(const Note& note) {
  const absl::Time now = Clock::Real().Now();
  JournalProgress progress;
  {
    const MutexLock lock(mu_);
    note(progress_);
    if (now - told_ < every_) return;
    told_ = now;
    progress_.elapsed = now - start_;
    share_.Set(progress_.share());
    applied_bytes_.Set(static_cast<double>(progress_.bytes));
    progress = progress_;
  }
  if (tell_) tell_(progress);
}

void RecoveryProgress::NoteRead(std::uint64_t bytes) {
  Take([bytes](JournalProgress& progress) { progress.read_bytes += bytes; });
}

void RecoveryProgress::NoteApplied(std::uint64_t records, std::uint64_t bytes) {
  Take([=](JournalProgress& progress) {
    progress.records = records;
    progress.bytes = bytes;
  });
}

void RecoveryProgress::End() {
  const MutexLock lock(mu_);
  share_.Set(1);
  applied_bytes_.Set(static_cast<double>(progress_.bytes));
}

}  // namespace embla
