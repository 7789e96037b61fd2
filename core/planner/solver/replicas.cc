#include "core/planner/solver/replicas.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace embla::planner {
namespace {

// "h:5" as the share calls it. Requires: a valid device name.
std::string ShareOf(const std::string& device, std::uint32_t replicas) {
  const std::size_t colon = device.rfind(':');
  std::uint32_t number = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(device.substr(colon + 1), &number)) {
    return device;
  }
  return absl::StrCat(device.substr(0, colon + 1), number / replicas);
}

absl::StatusOr<Host> ShareOf(const Host& host, std::uint32_t replicas) {
  if (host.devices.size() % replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat("replicas ", replicas, ": host ", host.name,
                                                   " has ", host.devices.size(),
                                                   " devices, not a multiple"));
  }
  Host share{host.name, {}, host.memory_bytes / replicas, host.ssd_bytes / replicas};
  for (std::size_t i = 0; i < host.devices.size(); i += replicas) {
    Device device = host.devices[i];
    for (std::size_t j = i + 1; j < i + replicas; ++j) {
      const Device& other = host.devices[j];
      if (other.group != device.group) {
        return absl::InvalidArgumentError(absl::StrCat("replicas ", replicas, ": devices ", i,
                                                       " and ", j, " of host ", host.name,
                                                       " are of different groups"));
      }
      device.memory_bytes = std::min(device.memory_bytes, other.memory_bytes);
      device.slowdown = std::max(device.slowdown, other.slowdown);
    }
    share.devices.push_back(std::move(device));
  }
  return share;
}

}  // namespace

std::vector<std::uint32_t> ReplicaChoices(const Topology& topology) {
  std::size_t common = 0;
  for (const Host& host : topology.hosts) common = std::gcd(common, host.devices.size());
  std::vector<std::uint32_t> choices;
  for (std::uint32_t r = 1; r <= common; ++r) {
    if (common % r == 0) choices.push_back(r);
  }
  return choices;
}

absl::StatusOr<Problem> GroupShare(Problem problem, std::uint32_t replicas) {
  problem.replicas = replicas;
  if (replicas == 1) return problem;
  for (Host& host : problem.topology.hosts) {
    absl::StatusOr<Host> share = ShareOf(host, replicas);
    if (!share.ok()) return share.status();
    host = *std::move(share);
  }
  for (Table& table : problem.tables) {
    TableRules& rules = table.rules;
    if (!rules.pin.empty()) rules.pin = ShareOf(rules.pin, replicas);
    for (std::string& device : rules.devices) device = ShareOf(device, replicas);
  }
  return problem;
}

}  // namespace embla::planner
