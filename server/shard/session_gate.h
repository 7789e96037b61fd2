// Decides which updates a node takes: those of sessions that the cluster's coordinator granted,
// that are not closed, and whose numbers are in reach of what the node has seen of them.
//
// A proof is verified by the cluster's key, once per session: afterwards its bytes are compared.
//
// Reach: a damaged counter must not raise the window of its session, since all updates below a
// window count as applied. An honest client may update other nodes for long before it comes back,
// so a jump is measured against the time since the session was last seen: kSeqPerSecond is above
// what any client sends, kSeqSlack is for updates that overtake each other and for clocks that
// step. A session that was never seen may begin with any number below kSeqMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/cluster_key.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/base/session_proof.h"
#include "server/migration/session_set.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class SessionGate {
 public:
  static constexpr std::uint64_t kSeqPerSecond = 1'000'000;
  static constexpr std::uint64_t kSeqSlack = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kSeqMax = std::uint64_t{1} << 44;
  // Most sessions that are remembered; beyond them some are verified again, and may jump to any
  // number.
  static constexpr std::size_t kSessionsMax = std::size_t{1} << 18;

  // Again: sessions whose proofs are of neither of its keys are refused from now on.
  void SetKey(std::shared_ptr<const ClusterKey> key);
  std::shared_ptr<const ClusterKey> key() const;

  // PermissionDenied: `proof` does not show that `session` was granted by this cluster.
  // Unavailable: this node does not have the cluster's key yet.
  absl::Status Verify(SessionId session, const SessionProof& proof);

  // Requires: Verify said OK, or the caller is to be trusted.
  // InvalidArgument: the numbers are out of reach.
  absl::Status Admit(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete, absl::Time now);
  // An update that an earlier process of this node has taken.
  void Recall(SessionId session, UpdateSeq seq, absl::Time now);

  // A session as Recall is told of it by the process after this one.
  struct Seen {
    SessionId session{};
    UpdateSeq seq{};
    absl::Time time;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen() const;

  // Whether the sender has said that all updates up to `seq` are over, or the session is closed.
  bool IsOver(SessionId session, UpdateSeq seq) const;

  void Close(const ClosedSessions& closed);
  bool IsClosed(SessionId session) const;
  // PermissionDenied: the session is closed.
  absl::Status Check(SessionId session) const;
  ClosedSessions closed() const;

 private:
  struct Known {
    SessionProof proof{};          // Verified, unless all zeros.
    UpdateSeq seq{};               // The highest one that was taken; 0: none.
    absl::Time seen;               // Time when `seq` was taken.
    UpdateSeq first_incomplete{};  // The highest one that was said.
  };
  Known& Remember(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::shared_ptr<const ClusterKey> key_ ABSL_GUARDED_BY(mu_);
  // Sessions that are not closed.
  absl::flat_hash_map<std::uint64_t, Known> known_ ABSL_GUARDED_BY(mu_);
  ClosedSessions closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
