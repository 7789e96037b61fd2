#include "core/planner/problem/machine.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/planner/problem/cost_model.h"

namespace embla::planner {
namespace {

bool Lists(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

std::string NameOfDevice(const Host& host, std::size_t index) {
  return absl::StrCat(host.name, ":", index);
}

// Every name in the rules exists in the topology.
absl::Status CheckKnown(const Topology& topology, const TableRules& rules) {
  const auto some_device = [&](const auto& predicate) {
    for (const Host& host : topology.hosts) {
      for (std::size_t i = 0; i < host.devices.size(); ++i) {
        if (predicate(host, i)) return true;
      }
    }
    return false;
  };
  for (const std::string& name : rules.hosts) {
    if (!some_device([&](const Host& host, std::size_t) { return host.name == name; })) {
      return absl::InvalidArgumentError(absl::StrCat("rule hosts: no host '", name, "'"));
    }
  }
  std::vector<std::string> devices = rules.devices;
  if (!rules.pin.empty()) devices.push_back(rules.pin);
  for (const std::string& name : devices) {
    if (!some_device(
            [&](const Host& host, std::size_t i) { return NameOfDevice(host, i) == name; })) {
      return absl::InvalidArgumentError(
          absl::StrCat(name == rules.pin ? "rule pin" : "rule devices", ": no device '", name,
                       "' (write <host>:<index>)"));
    }
  }
  for (const std::string& name : rules.groups) {
    if (!some_device(
            [&](const Host& host, std::size_t i) { return host.devices[i].group == name; })) {
      return absl::InvalidArgumentError(absl::StrCat("rule groups: no group '", name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

TierBytes Machine::TotalCapacity() const {
  TierBytes total{};
  for (const std::int64_t bytes : capacity) total[0] += bytes;
  for (const TierBytes& bytes : host_capacity) {
    total[1] += bytes[1];
    total[2] += bytes[2];
  }
  return total;
}

Machine MachineOf(const Problem& problem) {
  Machine machine;
  const double reserved = ReservedBytes(problem);
  for (const Host& host : problem.topology.hosts) {
    machine.host_begin.push_back(machine.devices());
    for (const Device& device : host.devices) {
      machine.host_of.push_back(machine.hosts());
      machine.capacity.push_back(UsableBytes(problem, device, reserved));
      machine.slowdown.push_back(std::llround(device.slowdown * static_cast<double>(kSlowdownOne)));
    }
    machine.host_capacity.push_back({0, host.memory_bytes, host.ssd_bytes});
  }
  machine.host_begin.push_back(machine.devices());
  return machine;
}

std::string DeviceName(const Problem& problem, const Machine& machine, std::uint32_t device) {
  const std::uint32_t host = machine.host_of[device];
  return NameOfDevice(problem.topology.hosts[host], device - machine.host_begin[host]);
}

absl::StatusOr<std::vector<std::uint32_t>> AllowedDevices(const Problem& problem,
                                                          const TableRules& rules) {
  if (absl::Status known = CheckKnown(problem.topology, rules); !known.ok()) return known;
  std::vector<std::uint32_t> allowed;
  std::uint32_t number = 0;
  for (const Host& host : problem.topology.hosts) {
    for (std::size_t i = 0; i < host.devices.size(); ++i, ++number) {
      const std::string name =
          rules.devices.empty() && rules.pin.empty() ? std::string() : NameOfDevice(host, i);
      if (Lists(rules.hosts, host.name) && Lists(rules.devices, name) &&
          Lists(rules.groups, host.devices[i].group) && (rules.pin.empty() || rules.pin == name)) {
        allowed.push_back(number);
      }
    }
  }
  if (allowed.empty()) {
    std::vector<std::string> names;
    if (!rules.hosts.empty()) names.push_back("hosts");
    if (!rules.devices.empty()) names.push_back("devices");
    if (!rules.groups.empty()) names.push_back("groups");
    if (!rules.pin.empty()) names.push_back("pin");
    return absl::InvalidArgumentError(
        absl::StrCat("rules ", absl::StrJoin(names, " and "), " leave no device"));
  }
  return allowed;
}

Problem Canonical(Problem problem) {
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  auto& tables = problem.tables;
  auto& hosts = problem.topology.hosts;
  if (!std::is_sorted(tables.begin(), tables.end(), by_name)) {
    std::sort(tables.begin(), tables.end(), by_name);
  }
  std::sort(hosts.begin(), hosts.end(), by_name);
  return problem;
}

}  // namespace embla::planner
