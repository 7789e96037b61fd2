// The memory that a process may take at most, and with whom it shares it.
#pragma once

#include <cstdint>
#include <string>

namespace embla {

struct HostMemory {
  // The same for all processes that share these bytes: the machine's boot id, and the control group
  // whose limit they are under, if there is one. Empty: not known.
  std::string id = {};
  std::int64_t bytes =
      0;  // Bytes of the machine, or the least limit of a control group above the process.
  bool operator==(const HostMemory&) const = default;
};

// The memory of this process. `root` is where /proc and /sys/fs/cgroup (version 1 or 2) are found.
HostMemory FindHostMemory(const std::string& root = "");

}  // namespace embla
