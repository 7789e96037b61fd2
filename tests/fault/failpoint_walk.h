// The walk along all failpoints: which process is armed with which, phase by phase.
//
// In one phase each shard server dies at one point, and the coordinator at two, side by side: they
// are processes of their own, and the phase is judged as a whole. Points that only the loss of a
// node leads to have phases of their own (ForgetLostNode).
#pragma once

#include <atomic>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tests/fault/chaos_cluster.h"
#include "tests/fault/failpoint_places.h"
#include "tests/fault/fault_schedule.h"

namespace embla::fault {

class FailpointWalk {
 public:
  // `places` outlive this object. In a cluster of so many shard servers.
  FailpointWalk(std::span<const FailpointPlace* const> places, int shards);

  bool is_over() const { return coordinator_.empty() && shard_.empty(); }
  // By lane, the faults of the next phase; each has a place, where its victim has to die.
  std::vector<std::vector<Fault>> NextPhase();
  // Places that the loss of a node leads to.
  std::span<const FailpointPlace* const> forgetting() const { return forgetting_; }

 private:
  const int shards_;
  std::deque<const FailpointPlace*> coordinator_;
  std::deque<const FailpointPlace*> shard_;
  std::vector<const FailpointPlace*> forgetting_;
};

// The text that arms a process to die at `place`.
std::string ArmedAt(const FailpointPlace& place);

// Reads and updates all rows of a table of its own, whose replies and records are large, as long as
// it lives.
class LargeLoad {
 public:
  explicit LargeLoad(ChaosCluster& cluster);  // Not owned; outlives this object.
  ~LargeLoad() { Stop(); }

  // Ends the load. Errors: an update failed; DataLoss: one is missing, or was applied twice.
  absl::Status Finish();

 private:
  void Run();
  absl::Status Train();
  void Stop();

  ChaosCluster& cluster_;
  std::atomic<bool> stops_ = false;
  int updates_ = 0;      // Acknowledged.
  absl::Status status_;  // Both are the thread's until it ends.
  std::thread thread_;   // Last: it uses the others.
};

// Waits until one of `victims`, which were armed with `place`, has died there, and all run again.
// Errors: DeadlineExceeded: none has died there; they run on without the failpoint.
// FailedPrecondition: it had to serve before.
absl::Status AwaitDeathAt(const FailpointPlace& place, ChaosCluster& cluster,
                          std::span<const int> victims);

// Loses the last shard server with its disk, when it has nothing but an untrained table, and
// forgets its node. The coordinator, or one of the other shard servers, has to die at `place`
// meanwhile. Then a new machine has taken its place, and the table begins at its initial values.
absl::Status ForgetLostNode(const FailpointPlace& place, ChaosCluster& cluster);

}  // namespace embla::fault
