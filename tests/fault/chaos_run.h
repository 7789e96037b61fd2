// A chaos run: trainers train and units move without a pause while faults of a seeded schedule come
// in phases. After each phase everything is healed, the trainers stop, and the tables are judged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "core/base/mutex.h"
#include "tests/fault/chaos_cluster.h"
#include "tests/fault/coverage.h"
#include "tests/fault/failpoint_walk.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/job_driver.h"
#include "tests/fault/judged_table.h"

namespace embla::fault {

struct ChaosOptions {
  int faults = 20;
  std::uint64_t seed = 1;
  int shards = 4;
  int devices_per_shard = 1;
  int trainers = 4;
  int lanes = 3;  // Faults at the same time.
  int faults_per_phase = 25;
  // Not empty: instead of drawn faults, processes die at each of these. Not owned.
  std::vector<const FailpointPlace*> walk = {};
  bool kills_shards = true;
  std::vector<std::string> shard_flags = {};
  // Failpoints of shard servers at first: damage that must be found.
  std::string planted = {};
  std::string directory;    // For everything the processes write; empty at first.
  bool is_verbose = false;  // Tells every fault when it comes.
};

struct ChaosReport {
  int faults = 0;
  std::uint64_t acknowledged = 0;
  int lost = 0;
  int doubled = 0;
  int two_owners = 0;
  int named_by_verify = 0;  // Copies that `embla verify` found to differ.
  // Everything that must not be, in words: lost and doubled updates among it.
  std::vector<std::string> findings;
};

class ChaosRun {
 public:
  explicit ChaosRun(const ChaosOptions& options);
  ~ChaosRun();

  // Prints seed, schedule, coverage and findings as it goes.
  ChaosReport Run();

 private:
  // Everything of one phase; false: the run cannot go on.
  bool RunPhase(int phase);
  std::vector<std::vector<Fault>> NextFaults(int phase, std::uint64_t seed);
  bool HasFaultsLeft() const;
  // A phase of the walk in which a node is lost; false: the run cannot go on.
  bool RunForgetting(const FailpointPlace& place);
  void RunLane(const std::vector<Fault>& faults);
  void Inject(const Fault& fault);
  void InjectInProcess(const Fault& fault);
  void InjectOnLink(const Fault& fault);
  void SendStale(const Fault& fault);
  std::string RoleOf(const Fault& fault, const MoveState& state) const;

  absl::Status StartCluster();
  absl::Status ReplaceTables();
  bool AwaitProgress();
  void AddHang();
  void SayTotals();
  bool Judge();
  // Waits until no trainer has anything in flight.
  bool PauseTrainers();
  void JudgeTable(std::span<const std::unique_ptr<client::Client>> by_group,
                  const JudgedTable& table);
  void VerifyTable(const JudgedTable& table);

  void AddFinding(const std::string& what);
  void Say(const std::string& line) const;

  const ChaosOptions options_;
  Coverage coverage_;
  std::unique_ptr<ChaosCluster> cluster_;
  int tables_made_ = 0;
  JudgedTables tables_;
  std::unique_ptr<JobDriver> jobs_;
  FailpointWalk walk_;

  mutable Mutex mu_;
  ChaosReport report_ ABSL_GUARDED_BY(mu_);
  absl::Duration recovery_max_;  // From the end of all faults until every trainer got on.
  std::uint64_t units_moved_ = 0;
};

}  // namespace embla::fault
