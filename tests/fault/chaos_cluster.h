// The processes of a chaos run, each behind proxies, killed, stopped and started again at will.
//
//   trainers ──► proxy ──► coordinator ◄── proxy ◄── each shard server (NodeLink)
//   trainers, peers ──► proxy of a shard server ──► shard server
//
// Trainers are processes, too (trainer_main.cc); the board tells them what to do.
//
// Operators' calls (AdminService) go to the coordinator without a proxy.
//
// A process that ends by itself is started again: at a failpoint it was armed with, as planned;
// with any other end that is a finding.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <ios>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "core/base/mutex.h"
#include "core/base/testing/loopback.h"
#include "tests/fault/fault_proxy.h"
#include "tests/fault/replayer.h"
#include "tests/fault/trainer_board.h"
#include "tests/testing/process_cluster.h"

namespace embla::fault {

// Processes have numbers: shard servers 0, 1, ..., then the trainers.
inline constexpr int kCoordinator = -1;
// "coordinator", "node3", "trainer0"
std::string NameOfVictim(int victim, int shards);

struct ChaosClusterOptions {
  int shards = 4;
  int devices_per_shard = 1;
  int trainers = 4;
  bool has_data_dirs = false;  // Shard servers keep a log: they may be killed.
  std::vector<std::string> shard_flags = {};
  std::string first_failpoints = {};  // Failpoints of shard servers at their first start.
  std::uint64_t seed = 1;
  std::string directory;  // Empty at first; kept.
};

// The result of `embla verify` for a table.
struct Verification {
  int units_without_one_owner = 0;
  std::vector<std::string> findings;  // Findings, with advice to the operator.
};

// A process died at the failpoint that it was armed with.
using OnFailpoint = std::function<void(int victim, const std::string& failpoint)>;
// A process ended in a way that nobody planned. `what` says how, with the end of its log.
using OnUnplannedEnd = std::function<void(const std::string& what)>;

// Thread safety: every method may be called from any thread.
class ChaosCluster {
 public:
  static absl::StatusOr<std::unique_ptr<ChaosCluster>> Start(const ChaosClusterOptions& options,
                                                             OnFailpoint on_failpoint,
                                                             OnUnplannedEnd on_unplanned_end);
  ~ChaosCluster();

  int shards() const { return options_.shards; }
  int devices_per_shard() const { return options_.devices_per_shard; }
  // Proxies do not see messages that go by sockets of their own: every second shard server has
  // none.
  static bool HasDataSockets(int shard) { return shard % 2 != 0; }
  std::string NameOf(int victim) const { return NameOfVictim(victim, shards()); }
  // -2: nobody.
  int VictimOf(const std::string& node_name) const;

  // One fault at a time per victim: the others wait for their turn.
  class Turn {
   public:
    Turn(ChaosCluster& cluster, int victim);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ChaosCluster& cluster_;
    const int victim_;
  };
  // Within a Turn. SIGKILL; it comes back after `down`, armed with `failpoint` ("name=crash@3") if
  // that is not empty.
  void Kill(int victim, absl::Duration down, const std::string& failpoint);
  // Kills a shard server for good, with its data directory. Kill brings a new machine in its place.
  void Lose(int shard);
  // Waits until the victim has died at the failpoint that Kill gave it. Returns whether it had told
  // its ports before, which is the end of its start. None: it has not died there, or elsewhere.
  std::optional<bool> AwaitFailpoint(int victim, absl::Duration timeout);
  // Asks again and again until `condition` is true; false: `timeout` is over.
  bool Await(const std::function<bool()>& condition, absl::Duration timeout);
  // Waits until it was started again.
  void AwaitRunning(int victim);
  void Stop(int victim);      // SIGSTOP
  void Continue(int victim);  // SIGCONT
  // Fills the disk of a shard server with a data directory: its log has room for so many bytes
  // more, until the process ends.
  void FillDisk(int shard, int room_bytes);

  FaultProxy& data_proxy(int shard) { return *data_proxies_[shard]; }
  FaultProxy& link_proxy(int shard) { return *link_proxies_[shard]; }
  FaultProxy& trainer_proxy() { return *trainer_proxy_; }
  std::vector<FaultProxy*> proxies();
  Replayer& replayer() { return replayer_; }

  // From now on nothing is armed when it starts. A coordinator that is armed is killed: whoever
  // judges asks it for new tables, and would meet its failpoint.
  void Disarm();
  void Arm();
  // All processes run, all nodes are live and have the current plan.
  absl::Status AwaitWell(absl::Duration timeout);

  // Address of the coordinator for trainers, through a proxy.
  const std::string& trainer_address() const { return trainer_proxy_->address(); }
  // Without one.
  std::string coordinator_address() const;
  std::string admin_address() const;
  absl::StatusOr<std::unique_ptr<client::Admin>> ConnectAdmin() const;
  // `embla verify`, the program. Errors: it could not look.
  absl::StatusOr<Verification> Verify(const std::string& table) const;
  // The ends of all logs.
  std::string LogTails() const;
  const TrainerBoard& board() const { return *board_; }
  // Damage that trainers saw, one per line, since the last call.
  std::vector<std::string> TakeDamage();

 private:
  struct Process {
    testing::ChildProcess child;
    std::string listen = testing::AnyLoopbackPort();
    std::string admin = testing::AnyLoopbackPort();  // Coordinator only.
    std::string failpoint;                           // Armed with.
    absl::Time start_at = absl::InfiniteFuture();
    std::string next_failpoint;
    std::optional<bool> had_served;  // When it died at its failpoint.
    bool in_turn = false;
  };

  ChaosCluster(const ChaosClusterOptions& options, OnFailpoint on_failpoint,
               OnUnplannedEnd on_unplanned_end);
  Process& ProcessOf(int victim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return processes_[victim + 1];
  }
  int victims_end() const { return options_.shards + options_.trainers; }
  bool IsTrainer(int victim) const { return victim >= options_.shards; }
  absl::Status StartProxies();
  absl::Status StartProcesses();
  std::vector<std::string> ArgumentsOf(int victim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Launch(int victim, const std::string& failpoint);
  // Reads where `victim` listens, waiting for it.
  absl::Status AwaitPorts(int victim);
  void Watch();
  void LookAt(int victim);
  // Until somebody may see something else. The processes do not say so themselves.
  void AwaitNextLook();
  std::string FileOf(int victim, const char* ending) const;

  const ChaosClusterOptions options_;
  const OnFailpoint on_failpoint_;
  const OnUnplannedEnd on_unplanned_end_;
  Replayer replayer_;
  std::optional<TrainerBoard> board_;
  std::vector<std::streamoff>
      damage_read_;  // By trainer: of its log, so many bytes were looked at.
  std::vector<std::unique_ptr<FaultProxy>> data_proxies_;
  std::vector<std::unique_ptr<FaultProxy>> link_proxies_;
  std::unique_ptr<FaultProxy> trainer_proxy_;

  mutable Mutex mu_;
  CondVar turn_over_;
  CondVar changed_;                                      // A process was started, or this ends.
  std::vector<Process> processes_ ABSL_GUARDED_BY(mu_);  // The coordinator's first.
  bool is_disarmed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;
};

}  // namespace embla::fault
