// One candidate of an election by etcd's recipe: a key with a lease for each candidate, and the one
// that was created first leads. When its lease ends, the next one does.
//
// Safety is not in who believes to lead, nor in clocks: whoever writes as the leader compares
// `fence`, the revision at which the candidate's key was created, in the same transaction. The
// key exists only until its lease ends, its name is used once, and a candidate leads only once all
// older keys are gone, for ever. So of two that believe to lead only the later one can write.
// Clocks only say when a candidate that etcd does not answer gives up.
//
// There is no watch: candidates look at the few keys several times a second. etcd 3.4 of Debian 12
// may lose events of watches (docs/decisions/0031-coordinators-on-etcd.md).
//
// Covered by etcd_election_test.cc (a model of etcd with lost and late calls, clocks that stop) and
// tests/integration/coordinators_test.cc (real members and coordinators).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "server/etcd/etcd_kv.h"

namespace embla {

struct EtcdElectionOptions {
  std::string prefix;                            // EtcdLayout::Election.
  absl::Duration ttl = absl::Seconds(3);         // Whole seconds; etcd has a least one.
  absl::Duration keep_alive = absl::Seconds(1);  // How often the lease is prolonged.
  absl::Duration attempt = absl::Milliseconds(750);
};

struct ElectionView {
  bool leads = false;
  std::string leader;                   // The value of the leader's key. Empty: nobody leads.
  std::vector<EtcdCompare> fence = {};  // With `leads`: holds at etcd as long as it does.
};

// Thread safety: none.
class EtcdElection {
 public:
  // `value` tells others about this candidate. `kv` and `clock` are not owned and outlive it.
  EtcdElection(EtcdKv& kv, const Clock& clock, const EtcdElectionOptions& options,
               std::string value);

  // Keeps the lease, stands for election and looks who leads. Call it several times a second: waits
  // for etcd, at most a few times `attempt`. After an error the candidate may go on to lead, until
  // leads_until().
  absl::StatusOr<ElectionView> Step();
  // Gives up the lease, so that others lead at once. May fail silently: then they wait for its end.
  void Resign();
  // Tells others something else.
  absl::Status SetValue(std::string value);

  // While the candidate leads: its lease is not longer than that, by this machine's clock. Beyond
  // it the candidate stops to act as the leader.
  absl::Time leads_until() const { return is_leading_ ? valid_until_ : absl::InfinitePast(); }

 private:
  absl::Status KeepLease();
  absl::Status StandForElection();
  void DropLease();

  EtcdKv& kv_;          // Not owned; outlives this object.
  const Clock& clock_;  // Likewise.
  const EtcdElectionOptions options_;
  std::string value_;
  EtcdLease lease_{};  // 0: none.
  std::string key_;
  EtcdRevision created_{};   // 0: not known to exist.
  bool is_leading_ = false;  // Found to, with the present lease.
  absl::Time valid_until_ = absl::InfinitePast();
  absl::Time keep_at_ = absl::InfinitePast();
};

}  // namespace embla
