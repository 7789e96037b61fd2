#include "server/table/row_intervals.h"

#include <algorithm>

namespace embla {
namespace {

bool EndsBefore(const RowInterval& interval, std::int64_t row) { return interval.end < row; }
bool EndsAtOrBefore(const RowInterval& interval, std::int64_t row) { return interval.end <= row; }

}  // namespace

void RowIntervals::Insert(RowInterval rows) {
  if (rows.begin >= rows.end) return;
  // Neighbours are joined, too.
  const auto first = std::lower_bound(intervals_.begin(), intervals_.end(), rows.begin, EndsBefore);
  auto last = first;
  for (; last != intervals_.end() && last->begin <= rows.end; ++last) {
    rows.begin = std::min(rows.begin, last->begin);
    rows.end = std::max(rows.end, last->end);
  }
  intervals_.insert(intervals_.erase(first, last), rows);
}

void RowIntervals::Erase(RowInterval rows) {
  if (rows.begin >= rows.end) return;
  std::vector<RowInterval> rest;
  for (const RowInterval& interval : intervals_) {
    const RowInterval before{interval.begin, std::min(interval.end, rows.begin)};
    const RowInterval after{std::max(interval.begin, rows.end), interval.end};
    if (before.begin < before.end) rest.push_back(before);
    if (after.begin < after.end) rest.push_back(after);
  }
  intervals_ = std::move(rest);
}

bool RowIntervals::ContainsAll(RowInterval rows) const {
  const auto it =
      std::lower_bound(intervals_.begin(), intervals_.end(), rows.begin, EndsAtOrBefore);
  return it != intervals_.end() && it->begin <= rows.begin && rows.end <= it->end;
}

bool RowIntervals::Intersects(RowInterval rows) const {
  const auto it =
      std::lower_bound(intervals_.begin(), intervals_.end(), rows.begin, EndsAtOrBefore);
  return it != intervals_.end() && it->begin < rows.end && rows.begin < rows.end;
}

RowIntervals RowIntervals::CommonWith(const RowIntervals& other) const {
  RowIntervals common;
  for (const RowInterval& mine : intervals_) {
    for (const RowInterval& theirs : other.intervals_) {
      const RowInterval both{std::max(mine.begin, theirs.begin), std::min(mine.end, theirs.end)};
      if (both.begin < both.end) common.Insert(both);
    }
  }
  return common;
}

}  // namespace embla
