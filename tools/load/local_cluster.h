// A cluster on loopback for one benchmark run: a coordinator and shard servers, each a process of
// its own, as in production, forked from this program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace embla::load {

struct LocalClusterOptions {
  int nodes = 1;
  int devices_per_node = 1;
  std::int64_t memory_per_device = std::int64_t{4} << 30;
  int threads_per_device = 0;  // 0: cores / devices.
};

class LocalCluster {
 public:
  // Forks: call it before this process has a second thread.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options);
  // Ends all processes.
  ~LocalCluster();

  const std::string& coordinator_address() const { return coordinator_address_; }
  const std::string& admin_address() const { return admin_address_; }
  std::span<const pid_t> shard_processes() const { return shards_; }

 private:
  LocalCluster() = default;

  std::string coordinator_address_;
  std::string admin_address_;
  std::vector<pid_t> shards_;
  pid_t coordinator_ = -1;
  std::vector<int> lifelines_;  // A child ends when its pipe is closed, also by our death.
};

}  // namespace embla::load
