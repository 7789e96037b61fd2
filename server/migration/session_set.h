// Sets of sessions, and those that are closed: a value that only grows, from the coordinator to all
// nodes (docs/consistency.md).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace embla {

// Kept as ranges: sessions have ascending ids and most of them are closed, so there is about one
// range per session that is open.
class SessionSet {
 public:
  // Both ends are in it.
  using Range = std::pair<SessionId, SessionId>;

  SessionSet() = default;
  // InvalidArgument: a range that is empty, has session 0, or does not lie behind and apart from
  // the one before it.
  static absl::StatusOr<SessionSet> FromRanges(std::vector<Range> ranges);

  bool Has(SessionId session) const;
  void Insert(SessionId session) { Insert({session, session}); }
  void Insert(const Range& range);
  // All that `other` has.
  void Include(const SessionSet& other);
  // The sessions that `other` does not have.
  SessionSet Minus(const SessionSet& other) const;
  // The parts of its ranges that lie in `range`.
  std::vector<Range> Within(const Range& range) const;

  std::uint64_t size() const { return size_; }
  bool empty() const { return ranges_.empty(); }
  std::span<const Range> ranges() const { return ranges_; }  // Ascending.
  bool operator==(const SessionSet&) const = default;

 private:
  std::vector<Range> ranges_;
  std::uint64_t size_ = 0;
};

struct ClosedSessions {
  SessionSet refused;  // Sessions whose updates every node refuses.
  // The sessions among them that every node refuses: records of their updates can be deleted.
  SessionSet settled;

  void Include(const ClosedSessions& other) {
    refused.Include(other.refused);
    settled.Include(other.settled);
  }
  bool operator==(const ClosedSessions&) const = default;
};

}  // namespace embla
