// A cluster of real processes on loopback: one embla-coordinator and any number of embla-shard, in
// a temporary directory, killed and restarted at will. For tests that cross process borders.
//
// Programs come from $EMBLA_BIN_DIR, which ctest sets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/loopback.h"
#include "core/tls/testing/test_authority.h"

namespace embla::testing {

// One child process with a port file. Killed when destroyed.
class ChildProcess {
 public:
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // Starts `argv` with stdout and stderr appended to `log_path`.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv,
                                            const std::string& log_path);

  // Sends `signal`. Waits only with SIGSTOP: until all threads stand still, or the process has
  // ended.
  void Signal(int signal) const;
  // Waits for the end; returns the exit code, or 128 + signal.
  int Wait();
  // Waits for the end, at most `timeout`; whether it has come. Wait is still to be called.
  bool AwaitEnd(absl::Duration timeout) const;
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class ProcessCluster {
 public:
  struct Options {
    int nodes = 2;
    int devices_per_node = 2;
    std::vector<std::string> coordinator_flags = {};
    std::vector<std::string> coordinator_environment = {};  // NAME=VALUE.
    std::vector<std::string> shard_flags = {};
    std::vector<std::string> shard_environment = {};  // NAME=VALUE.
    // All connections are over TLS, with certificates of this authority, which is not owned and
    // outlives the cluster. Connect calls as the trainer "trainer", ConnectAdmin and Embla as the
    // admin "admin". Null: plaintext.
    const TestAuthority* authority = nullptr;
    bool journals = false;  // Every node has a data directory, which outlives its process.
    // Without journals: a restart means that a node's rows are lost, and is let in.
    bool accepts_loss = true;
    // By node: EMBLA_FAILPOINTS (core/base/failpoint.h) of each of its processes.
    std::map<int, std::string> failpoints = {};
    // Nodes with failpoints are embla-shard-damaged (core/base/planted_damage.h).
    bool plants_damage = false;
  };

  // Returns when every node is live. Errors: DeadlineExceeded with the tail of the logs.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Start(const Options& options);
  ~ProcessCluster();

  absl::StatusOr<std::unique_ptr<client::Client>> Connect(
      client::ConnectOptions options = {}) const;
  absl::StatusOr<std::unique_ptr<client::Admin>> ConnectAdmin() const;
  // Returns the CLI's output, errors too, and its exit code. `arguments` are words for a shell.
  std::pair<std::string, int> Embla(const std::string& arguments) const;
  // Over TLS: the files of a certificate of `role` and `name`, issued now.
  client::TlsOptions Certificate(Role role, const std::string& name) const;

  // SIGKILL, and wait until the process is gone.
  void KillCoordinator();
  void KillNode(int node);
  // On the same port and state directory as before.
  absl::Status RestartCoordinator();
  // The same, returns when it listens.
  absl::Status StartCoordinator();
  // On the same port as before; returns when the coordinator calls it live and it has the plan.
  absl::Status RestartNode(int node);
  // The same, returns when it listens. `more` are flags of this start.
  absl::Status StartNode(int node, const std::vector<std::string>& more = {});
  // Waits until the node's program ends by itself; returns its exit code, -1 if it does not.
  int AwaitNodeEnd(int node);
  // Waits until every node that runs is live and has the coordinator's plan.
  absl::Status AwaitPlan() const;
  // SIGTERM; returns the exit code.
  int StopCoordinator();
  int StopNode(int node);
  // For tests that do not wait for the end, or that send other signals.
  const ChildProcess& coordinator() const { return coordinator_; }
  const ChildProcess& node(int node) const { return nodes_[node].process; }

  std::string data_dir(int node) const;
  const std::string& coordinator_address() const { return coordinator_address_; }
  const std::string& admin_address() const { return admin_address_; }
  const std::string& node_address(int node) const { return nodes_[node].address; }
  // Addresses of /metrics and /readyz.
  const std::string& coordinator_metrics_address() const { return coordinator_metrics_address_; }
  const std::string& node_metrics_address(int node) const { return nodes_[node].metrics_address; }
  std::string node_name(int node) const;
  std::string node_log(int node) const { return directory_ + "/" + node_name(node) + ".log"; }
  std::string state_directory() const { return directory_ + "/state"; }
  // With journals.
  std::string data_directory(int node) const {
    return directory_ + "/" + node_name(node) + ".data";
  }
  // The last lines of every log, for failure messages.
  std::string LogTails() const;

 private:
  // Where programs listen: from their first start on on one port each, which no other test can take
  // while they are dead.
  struct Node {
    ChildProcess process;
    std::string address = AnyLoopbackPort();
    std::string metrics_address = AnyLoopbackPort();
  };

  explicit ProcessCluster(Options options);
  void AddTlsFlags(std::vector<std::string>& argv, Role role, const std::string& name) const;
  absl::Status AwaitLive(int nodes) const;
  // Returns the processes that were not killed or stopped by the test.
  std::vector<const ChildProcess*> Running() const;

  const Options options_;
  std::string directory_;
  ChildProcess coordinator_;
  std::string coordinator_address_ = AnyLoopbackPort();
  std::string admin_address_ = AnyLoopbackPort();
  std::string coordinator_metrics_address_ = AnyLoopbackPort();
  std::vector<Node> nodes_;
};

// How long a test waits for a state that must come.
inline constexpr absl::Duration kAwaitMax = absl::Seconds(60);

}  // namespace embla::testing
