// Loads of devices and hosts: sums over the shards that have been placed so far.
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/problem/machine.h"
#include "core/planner/solver/options.h"

namespace embla::planner {

// By device and host of `machine`, which is borrowed and outlives this object.
struct PlacedLoads {
  explicit PlacedLoads(const Machine& on) : machine(on) { Clear(); }

  void Clear() {
    work.assign(machine.devices(), 0);
    bytes.assign(machine.devices(), 0);
    network.assign(machine.hosts(), 0);
    host_bytes.assign(machine.hosts(), {});
  }
  // Adds (sign 1) or removes (-1) one shard.
  void AddShard(const Option& option, std::uint32_t device, int sign) {
    const std::uint32_t host = machine.host_of[device];
    work[device] += sign * option.work;
    bytes[device] += sign * option.bytes[0];
    network[host] += sign * option.host_work;
    host_bytes[host][1] += sign * option.bytes[1];
    host_bytes[host][2] += sign * option.bytes[2];
  }
  // One shard on every device of the host.
  void AddRow(const Option& option, std::uint32_t host, int sign) {
    for (std::uint32_t d = machine.host_begin[host]; d < machine.host_begin[host + 1]; ++d) {
      AddShard(option, d, sign);
    }
  }

  const Machine& machine;
  std::vector<Ticks> work;
  std::vector<std::int64_t> bytes;  // Bytes in the device tier; the other tiers belong to the host.
  std::vector<Ticks> network;
  std::vector<TierBytes> host_bytes;
};

}  // namespace embla::planner
