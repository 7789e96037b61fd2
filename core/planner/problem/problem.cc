#include "core/planner/problem/problem.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/planner/problem/machine.h"

namespace embla::planner {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool IsPositive(double value) { return value > 0 && std::isfinite(value); }

absl::Status ValidateTopology(const Topology& topology) {
  if (topology.hosts.empty()) return Invalid("the topology has no host");
  absl::flat_hash_set<std::string> names;
  for (const Host& host : topology.hosts) {
    if (host.name.empty() || !names.insert(host.name).second) {
      return Invalid("host name '", host.name, "' is empty or given twice");
    }
    if (host.devices.empty()) return Invalid("host ", host.name, " has no device");
    if (host.memory_bytes < 0 || host.ssd_bytes < 0) {
      return Invalid("host ", host.name, ": memory is negative");
    }
    for (const Device& device : host.devices) {
      if (device.memory_bytes < 0) return Invalid("host ", host.name, ": memory is negative");
      if (!(device.slowdown >= kSlowdownMin && device.slowdown <= kSlowdownMax)) {
        return Invalid("host ", host.name, ": slowdown ", device.slowdown, " is not in ",
                       kSlowdownMin, " .. ", kSlowdownMax);
      }
    }
  }
  const Bandwidths& b = topology.bandwidth;
  for (const double value :
       {b.device_memory, b.host_memory, b.host_to_device, b.intra_host, b.inter_host, b.ssd}) {
    if (!IsPositive(value)) return Invalid("bandwidth ", value, " GiB/s is not positive");
  }
  return absl::OkStatus();
}

absl::Status ValidateFrequency(const Table& table) {
  double x = 0, y = 0;
  for (const auto& [rows, lookups] : table.frequency) {
    if (!(rows > x && lookups >= y && rows <= 1 && lookups <= 1)) {
      return Invalid("frequency point (", rows, ", ", lookups, ") is not above the one before it ",
                     "or not within 0 .. 1");
    }
    x = rows;
    y = lookups;
  }
  return absl::OkStatus();
}

absl::Status ValidateShape(const Table& table) {
  if (table.rows < 1 || table.rows > kRowsMax) {
    return Invalid("rows ", table.rows, " is not in 1 .. ", kRowsMax);
  }
  if (table.dim < 1 || table.dim > kDimMax) {
    return Invalid("dim ", table.dim, " is not in 1 .. ", kDimMax);
  }
  if (table.element_bytes < 1 || table.element_bytes > 8 || table.wire_bytes > 8) {
    return Invalid("element_bytes ", table.element_bytes, " is not in 1 .. 8");
  }
  if (!(table.lookups_per_sample >= 0 && table.lookups_per_sample <= 1e9) ||
      !(table.bags_per_sample >= 0 && table.bags_per_sample <= 1e9)) {
    return Invalid("pooling ", table.lookups_per_sample, " is not in 0 .. 1e9");
  }
  if (!IsPositive(table.measured_factor) || table.measured_factor > 1e6) {
    return Invalid("measured_factor ", table.measured_factor, " is not in 0 .. 1e6");
  }
  return ValidateFrequency(table);
}

// Rules that cannot hold together, whatever the machines are.
absl::Status ValidateRules(const TableRules& rules) {
  const auto& types = rules.types;
  const auto& kernels = rules.kernels;
  const bool only_replicas =
      !types.empty() && std::all_of(types.begin(), types.end(),
                                    [](ShardingType type) { return TraitsOf(type).has_copies; });
  if (only_replicas && !kernels.empty() &&
      std::find(kernels.begin(), kernels.end(), Kernel::kDevice) == kernels.end()) {
    return Invalid("rule types allows data_parallel only, which needs the kernel 'device' that ",
                   "rule kernels does not allow");
  }
  if (!rules.pin.empty() && rules.spread != Spread::kAny) {
    return Invalid("rule pin puts every shard on ", rules.pin, ", rule spread forbids that");
  }
  return absl::OkStatus();
}

absl::Status ValidateTable(const Problem& problem, const Table& table) {
  EMBLA_RETURN_IF_ERROR(ValidateShape(table));
  const TableRules& rules = table.rules;
  EMBLA_RETURN_IF_ERROR(ValidateRules(rules));
  if (rules.hosts.empty() && rules.devices.empty() && rules.groups.empty() && rules.pin.empty()) {
    return absl::OkStatus();
  }
  return AllowedDevices(problem, rules).status();
}

}  // namespace

absl::Status Validate(const Problem& problem) {
  EMBLA_RETURN_IF_ERROR(ValidateTopology(problem.topology));
  if (!(problem.local_batch >= 0 && problem.local_batch <= 1e9)) {
    return Invalid("batch ", problem.local_batch, " is not in 0 .. 1e9");
  }
  const Reservation& reservation = problem.reservation;
  if (!(reservation.fraction >= 0 && reservation.fraction < 1) || reservation.dense_bytes < 0) {
    return Invalid("reservation ", reservation.fraction, " is not in 0 .. 1");
  }
  if (!(problem.cache_fraction >= 0 && problem.cache_fraction <= 1)) {
    return Invalid("cache fraction ", problem.cache_fraction, " is not in 0 .. 1");
  }
  if (!IsPositive(problem.sync_period_steps)) return Invalid("sync period is not positive");
  absl::flat_hash_set<std::string_view> names;
  names.reserve(problem.tables.size());
  for (const Table& table : problem.tables) {
    if (table.name.empty() || !names.insert(table.name).second) {
      return Invalid("table name '", table.name, "' is empty or given twice");
    }
    EMBLA_RETURN_IF_ERROR(
        Annotate(ValidateTable(problem, table), absl::StrCat("table ", table.name)));
  }
  return absl::OkStatus();
}

}  // namespace embla::planner
