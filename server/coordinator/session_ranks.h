// Ranks that sessions have declared, for tables with synchronous steps, and the tables that they
// have asked to be members of (docs/synchronous_steps.md). In the store and in memory:
//   sessions/ranks/SESSION  {"rank": r, "ranks": n, "tables": [id*], "trainer": name or missing,
//                           "is_replaced": true or missing}; 20 decimal digits
//
// A rank of a table is claimed by one session. The record of a session that is closed stays until
// its ranks are out of all its tables, or claimed by another session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/state_store/state_store.h"

namespace embla {

// Each version of the plan lists the ranks of a table, for up to 256 steps one by one.
inline constexpr std::uint32_t kRanksMax = 4096;

struct RankedSession {
  Rank rank{};
  std::uint32_t ranks = 0;        // How many the session's trainer expects; rank < ranks.
  std::string trainer = {};       // Empty: the session has no trainer's name.
  bool is_replaced = false;       // Closed in favour of the trainer's next session.
  std::set<TableId> tables = {};  // Claimed.
  bool operator==(const RankedSession&) const = default;
};

// Thread safety: none.
class SessionRanks {
 public:
  // None: the record is deleted.
  using Changes = std::map<SessionId, std::optional<RankedSession>>;

  // DataLoss: what is in the store is none.
  static absl::StatusOr<SessionRanks> Load(const StateStore& store);

  // Null: the session has declared no rank, or its record is gone.
  const RankedSession* Find(SessionId session) const;
  std::optional<SessionId> HolderOf(TableId table, Rank rank) const;
  const std::map<SessionId, RankedSession>& all() const { return sessions_; }

  // Requires: afterwards no rank of a table is claimed by two sessions. Errors: those of the store;
  // the first of many changes may be made then.
  absl::Status Write(StateStore& store, const Changes& changes);

 private:
  void Put(SessionId session, const std::optional<RankedSession>& value);

  std::map<SessionId, RankedSession> sessions_;
  std::map<std::pair<TableId, Rank>, SessionId> holders_;
};

}  // namespace embla
