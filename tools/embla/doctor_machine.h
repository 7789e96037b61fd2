// The half of `embla doctor` that looks at this machine: its kernel, configuration files,
// directories, ports and etcd. No cluster has to run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/etcd/etcd_client.h"
#include "tools/embla/doctor_config.h"
#include "tools/embla/doctor_report.h"

namespace embla::cli {

struct DiskSpace {
  std::uint64_t free_bytes = 0;
  std::uint64_t bytes = 0;
};

// The facts of a machine that are in no file, so that tests state them. `root` stands before the
// paths of /proc, /sys, /etc/embla and /var/lib/embla.
struct ThisMachine {
  std::string root = {};
  absl::Time now;
  bool is_clock_synchronised = true;
  std::uint64_t descriptors_max = 0;  // The hard limit.
  std::uint64_t file_bytes_max = 0;   // RLIMIT_FSIZE.
  std::function<bool(const std::string& host)> resolves;
  std::function<absl::StatusOr<DiskSpace>(const std::string& path)> disk_space;
  // Asks the only member of `options` how many keys are below a prefix.
  std::function<absl::StatusOr<std::size_t>(const EtcdClientOptions& options,
                                            const std::string& prefix)>
      count_in_etcd;

  static ThisMachine Read();
};

// Limits, clock and memory.
void CheckKernel(const ThisMachine& machine, Report& report);
// Addresses and ports of the servers' configurations, and the memory that they promise.
// `admin_address` is that of the coordinators' admin listeners.
void CheckServers(const ThisMachine& machine, const std::vector<ServerConfig>& servers,
                  const std::string& admin_address, Report& report);
void CheckDirectory(const ThisMachine& machine, const std::string& path, Report& report);
void CheckEtcd(const ThisMachine& machine, const ServerConfig& coordinator, Report& report);

}  // namespace embla::cli
