#include "server/migration/session_window.h"

#include "core/base/check.h"

namespace embla {
namespace {

constexpr std::uint64_t kWordBits = 64;

std::uint64_t WordOf(std::uint64_t seq) { return seq % SessionWindow::kSize / kWordBits; }
std::uint64_t BitOf(std::uint64_t seq) { return std::uint64_t{1} << seq % kWordBits; }

}  // namespace

SessionWindow::Verdict SessionWindow::Classify(UpdateSeq seq) const {
  if (seq < floor) return Verdict::kApplied;
  const std::uint64_t value = ToInt(seq);
  if (value - ToInt(floor) >= kSize) return Verdict::kTooNew;
  return (words[WordOf(value)] & BitOf(value)) != 0 ? Verdict::kApplied : Verdict::kNew;
}

UpdateSeq SessionWindow::Highest() const {
  const std::uint64_t first = ToInt(floor);
  for (std::uint64_t seq = first + kSize; seq-- > first;) {
    // A word without updates is passed over at once.
    if (words[WordOf(seq)] == 0 && seq % kWordBits == kWordBits - 1 && seq - first >= kWordBits) {
      seq -= kWordBits - 1;
    } else if ((words[WordOf(seq)] & BitOf(seq)) != 0) {
      return UpdateSeq{seq};
    }
  }
  return UpdateSeq{first - 1};
}

void SessionWindow::RaiseFloor(UpdateSeq first_incomplete) {
  const std::uint64_t from = ToInt(floor);
  const std::uint64_t to = ToInt(first_incomplete);
  if (to <= from) return;
  if (to - from >= kSize) {
    words.fill(0);
  } else {
    for (std::uint64_t seq = from; seq < to; ++seq) words[WordOf(seq)] &= ~BitOf(seq);
  }
  floor = first_incomplete;
}

void SessionWindow::Include(SessionWindow other) {
  RaiseFloor(other.floor);
  other.RaiseFloor(floor);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
}

void SessionWindow::Record(UpdateSeq seq) {
  EMBLA_CHECK(Classify(seq) == Verdict::kNew);
  words[WordOf(ToInt(seq))] |= BitOf(ToInt(seq));
}

}  // namespace embla
