// Keeps units on the move: starts one job after the other, up and down, here and there, drains and
// cancels, for as long as it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "core/base/mutex.h"
#include "tests/fault/chaos_cluster.h"

namespace embla::fault {

// Activity of units, for the coverage of faults.
struct MoveState {
  std::string what = "idle";  // idle, copy, frozen, paused, cancel
  std::set<int> sources;      // Shard servers with something to give, and
  std::set<int> targets;      // to take.

  // "source", "target", "both" or "bystander".
  std::string RoleOf(int shard) const;
};

// Thread safety: every method may be called from any thread.
class JobDriver {
 public:
  // `cluster` is not owned and outlives this object. Begins at once.
  JobDriver(ChaosCluster& cluster, std::vector<std::string> tables, std::uint64_t seed);
  ~JobDriver();

  // Cancels the running job, waits until it is over, and lets all nodes have rows again. Errors:
  // DeadlineExceeded with the job that does not end.
  absl::Status Finish();

  MoveState Now() const;
  // "done 12, cancelled 3, failed 1 (why)"
  std::string Summary() const;
  std::uint64_t units_moved() const { return units_moved_; }

 private:
  void Run();
  v1::StartJobRequest DrawRequest();
  v1::StartJobRequest DrawGoal(std::uint64_t dice, const std::string& table,
                               const std::string& node);
  // Until the job is over, or this is stopped.
  void Follow(std::uint64_t id);
  void Interfere(std::uint64_t id);
  void Note(const v1::Job& job);
  void Count(const std::string& outcome);
  // Null while the coordinator is away.
  client::Admin* admin();
  absl::Status AwaitNoJob();
  absl::Status UndrainAll();
  void Stop();
  // Until the coordinator may say something else, or this is stopped.
  void AwaitNextLook();

  ChaosCluster& cluster_;
  const std::vector<std::string> tables_;
  std::mt19937_64 random_;
  std::unique_ptr<client::Admin> admin_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> units_moved_ = 0;

  mutable Mutex mu_;
  CondVar stopped_;
  MoveState state_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> outcomes_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace embla::fault
