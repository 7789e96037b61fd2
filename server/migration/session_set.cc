#include "server/migration/session_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace embla {
namespace {

bool EndsBefore(const SessionSet::Range& range, SessionId session) {
  return range.second < session;
}

bool AreAdjacent(SessionId end, SessionId begin) { return ToInt(end) + 1 == ToInt(begin); }

}  // namespace

absl::StatusOr<SessionSet> SessionSet::FromRanges(std::vector<Range> ranges) {
  SessionSet set;
  SessionId last{0};
  for (const auto& [begin, end] : ranges) {
    const bool is_apart = last == SessionId{0} || !AreAdjacent(last, begin);
    if (begin <= last || end < begin || !is_apart) {
      return absl::InvalidArgumentError(absl::StrCat("sessions ", ToInt(begin), " to ", ToInt(end),
                                                     " are no range behind ", ToInt(last),
                                                     " and apart from it"));
    }
    last = end;
    set.size_ += ToInt(end) - ToInt(begin) + 1;
  }
  set.ranges_ = std::move(ranges);
  return set;
}

bool SessionSet::Has(SessionId session) const {
  const auto it = std::lower_bound(ranges_.begin(), ranges_.end(), session, EndsBefore);
  return it != ranges_.end() && it->first <= session;
}

void SessionSet::Insert(SessionId session) {
  const auto next = std::lower_bound(ranges_.begin(), ranges_.end(), session, EndsBefore);
  if (next != ranges_.end() && next->first <= session) return;
  ++size_;
  const bool joins_next = next != ranges_.end() && AreAdjacent(session, next->first);
  const bool joins_last = next != ranges_.begin() && AreAdjacent(std::prev(next)->second, session);
  if (joins_last && joins_next) {
    std::prev(next)->second = next->second;
    ranges_.erase(next);
  } else if (joins_last) {
    std::prev(next)->second = session;
  } else if (joins_next) {
    next->first = session;
  } else {
    ranges_.insert(next, {session, session});
  }
}

void SessionSet::Include(const SessionSet& other) {
  std::vector<Range> all(ranges_);
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end());
  ranges_.clear();
  size_ = 0;
  for (const Range& range : all) {
    const bool joins = !ranges_.empty() && (range.first <= ranges_.back().second ||
                                            AreAdjacent(ranges_.back().second, range.first));
    if (joins) {
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    } else {
      ranges_.push_back(range);
    }
  }
  for (const auto& [begin, end] : ranges_) size_ += ToInt(end) - ToInt(begin) + 1;
}

}  // namespace embla
