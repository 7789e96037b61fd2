// The topology as flat arrays: devices and hosts by number, in the problem's order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/units.h"

namespace embla::planner {

struct Machine {
  std::vector<std::int64_t> slowdown;     // By device, fixed point (units.h).
  std::vector<std::int64_t> capacity;     // By device: usable bytes of device memory.
  std::vector<std::uint32_t> host_of;     // By device.
  std::vector<std::uint32_t> host_begin;  // By host: its first device; one more entry at the end.
  std::vector<TierBytes> host_capacity;   // By host; [Tier::kDevice] is 0.

  std::uint32_t devices() const { return static_cast<std::uint32_t>(host_of.size()); }
  std::uint32_t hosts() const { return static_cast<std::uint32_t>(host_capacity.size()); }
  std::uint32_t devices_of(std::uint32_t host) const {
    return host_begin[host + 1] - host_begin[host];
  }
  // Sum over all devices (or hosts).
  TierBytes TotalCapacity() const;
};

Machine MachineOf(const Problem& problem);

// "<host>:<index>" of device `device`.
std::string DeviceName(const Problem& problem, const Machine& machine, std::uint32_t device);

// Devices that `rules` allow, ascending. InvalidArgument names an unknown host, device or group,
// or the rules that leave no device.
absl::StatusOr<std::vector<std::uint32_t>> AllowedDevices(const Problem& problem,
                                                          const TableRules& rules);

// The problem with tables and hosts sorted by name: what is planned does not depend on the order
// of the input.
Problem Canonical(Problem problem);

}  // namespace embla::planner
