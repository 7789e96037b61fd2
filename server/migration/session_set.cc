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

void SessionSet::Insert(const Range& range) {
  // All that touch or overlap it become one with it.
  auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.first, EndsBefore);
  if (first != ranges_.begin() && AreAdjacent(std::prev(first)->second, range.first)) --first;
  Range joined = range;
  auto last = first;
  for (; last != ranges_.end(); ++last) {
    const bool joins = last->first <= joined.second || AreAdjacent(joined.second, last->first);
    if (!joins) break;
    joined = {std::min(joined.first, last->first), std::max(joined.second, last->second)};
    size_ -= ToInt(last->second) - ToInt(last->first) + 1;
  }
  size_ += ToInt(joined.second) - ToInt(joined.first) + 1;
  if (first == last) {
    ranges_.insert(first, joined);
  } else {
    *first = joined;
    ranges_.erase(std::next(first), last);
  }
}

void SessionSet::Include(const SessionSet& other) {
  for (const Range& range : other.ranges_) Insert(range);
}

std::vector<SessionSet::Range> SessionSet::Within(const Range& range) const {
  std::vector<Range> parts;
  auto it = std::lower_bound(ranges_.begin(), ranges_.end(), range.first, EndsBefore);
  for (; it != ranges_.end() && it->first <= range.second; ++it) {
    parts.emplace_back(std::max(it->first, range.first), std::min(it->second, range.second));
  }
  return parts;
}

SessionSet SessionSet::Minus(const SessionSet& other) const {
  SessionSet rest;
  const auto add = [&rest](std::uint64_t first, std::uint64_t last) {
    rest.ranges_.emplace_back(SessionId{first}, SessionId{last});
    rest.size_ += last - first + 1;
  };
  for (const auto& [begin, end] : ranges_) {
    std::uint64_t first = ToInt(begin);
    for (const auto& [hole_begin, hole_end] : other.Within({begin, end})) {
      if (ToInt(hole_begin) > first) add(first, ToInt(hole_begin) - 1);
      first = ToInt(hole_end) + 1;
    }
    if (first <= ToInt(end)) add(first, ToInt(end));
  }
  return rest;
}

}  // namespace embla
