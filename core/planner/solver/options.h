// Every way each table may be cut, priced, without those that another one beats everywhere.
//
// Option `a` stands in for `b` when any placement of b has room for a placement of a that loads no
// device more and takes no more memory: then no plan needs b, and no bound changes without it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {

// Shapes of an option's placement, from the most free to the least.
enum class Shape : std::uint8_t {
  kDevices = 0,     // Each shard on any device.
  kOneHost = 1,     // Each shard on any device of one host.
  kHostRows = 2,    // One shard on each device of one host.
  kGrid = 3,        // kHostRows, once per column block.
  kEverywhere = 4,  // One shard on each allowed device.
};

struct Option {
  Ticks work = 0;       // Per shard, as Price.
  Ticks host_work = 0;  // Per shard.
  TierBytes bytes{};    // Per shard.
  TierBytes total{};    // Sum over all shards.
  std::uint32_t shards = 1;
  Shape shape = Shape::kDevices;
  Cut cut;

  Ticks total_work() const { return work * shards; }
  Ticks total_host_work() const { return host_work * shards; }
};

// Devices that some table may use; tables with the same rules share one set.
struct DeviceSet {
  std::vector<std::uint32_t> devices;     // Ascending.
  std::vector<std::uint32_t> hosts;       // Hosts with at least one of them, ascending.
  std::vector<std::uint32_t> full_hosts;  // Hosts with all their devices in the set.
  std::vector<std::uint8_t> has;          // By device.
  std::int64_t slowdown_min = 0;
  std::int64_t capacity_max = 0;

  bool HasAll() const { return devices.size() == has.size(); }
};

struct OptionSet {
  std::vector<Option> all;
  std::vector<std::uint32_t> begin;   // By table, into `all`; one more entry at the end.
  std::vector<DeviceSet> sets;        // [0] has every device.
  std::vector<std::uint32_t> set_of;  // By table, into `sets`.
  std::vector<Spread> spread_of;      // By table.

  std::uint32_t tables() const { return static_cast<std::uint32_t>(set_of.size()); }
  std::span<const Option> of(std::uint32_t table) const {
    return {all.data() + begin[table], all.data() + begin[table + 1]};
  }
  const DeviceSet& devices_of(std::uint32_t table) const { return sets[set_of[table]]; }
};

// InvalidArgument names the table and the rules that leave no cut; ResourceExhausted the table
// whose smallest shard fits no device, with both sizes. `kept`: by table, a cut that stays even
// if another one beats it.
absl::StatusOr<OptionSet> MakeOptions(const Problem& problem, const Machine& machine,
                                      const CostModel& cost,
                                      std::span<const std::optional<Cut>> kept = {});

// The choice that uses `option`, without targets.
Placement PlacementOf(Shape shape);

}  // namespace embla::planner
