// Bounds the memory of requests in flight and of replies that are not read yet.
//
// Every request is held under its session, or under its connection where it has no session, from
// its arrival until its reply is written. Three rules keep the many safe from the few:
//   - whoever holds memory may have as much as there is left: one alone gets half of the whole, two
//     a third each, and who holds nothing finds room beside 40 that never read a reply;
//   - strangers, connections without a session, have a small part of their own, and a bound each;
//   - contributions to synchronous steps, which may wait for another rank's, are held apart by
//     session and table. Beyond its first one for a table a session has more of them only while all
//     that wait are less than half of the whole, so that the rank that is missing gets in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"
#include "core/rows/request.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/hold.h"

namespace embla {

struct InFlightLimits {
  std::size_t bytes_max = std::size_t{2} << 30;
  // Less than a connection's share (connection_shares.h), which also has the messages that are
  // still on their way to be refused.
  std::size_t stranger_bytes_max = std::size_t{12} << 20;
  std::size_t strangers_bytes_max = std::size_t{24} << 20;  // All strangers together.
};

// The client to whom the memory is charged.
struct InFlightHolder {
  bool has_session = false;
  std::uint64_t id = 0;  // Session or connection.
  TableId table{};       // Not 0: contributions to this table's synchronous steps.

  friend bool operator==(const InFlightHolder&, const InFlightHolder&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const InFlightHolder& holder) {
    return H::combine(std::move(state), holder.has_session, holder.id, holder.table);
  }
};

// A holder with a session that is proved and open.
InFlightHolder HolderOf(SessionId session);
InFlightHolder HolderOf(const UpdateBatch& update);
// A holder for requests without a session: their connection, whose share what it holds is part of.
InFlightHolder HolderOf(ConnectionId connection);

// Thread safety: every public method may be called from any thread.
class InFlightBudget {
 public:
  InFlightBudget(const InFlightLimits& limits, Gauge held_bytes)
      : limits_(limits), held_bytes_(held_bytes) {}

  // The budget outlives what it gives. Errors: ResourceExhausted (says which bound, and what to
  // do).
  absl::StatusOr<Hold> Take(const InFlightHolder& holder, std::size_t bytes);

  std::size_t held() const;
  // How often Take has succeeded: who sees the same number twice knows that no request came.
  std::uint64_t taken() const;

 private:
  absl::Status Check(const InFlightHolder& holder, std::size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckWaiting(std::size_t own, std::size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(const InFlightHolder& holder, std::size_t bytes);

  const InFlightLimits limits_;
  const Gauge held_bytes_;

  mutable Mutex mu_;
  std::size_t held_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t held_by_strangers_ ABSL_GUARDED_BY(mu_) = 0;  // Part of held_,
  std::size_t held_by_steps_ ABSL_GUARDED_BY(mu_) = 0;      // and so are contributions.
  std::uint64_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<InFlightHolder, std::size_t> by_holder_ ABSL_GUARDED_BY(mu_);  // Not 0.
};

}  // namespace embla
