// A plan in the making: which option each table uses, where its shards lie, and what devices and
// hosts carry then. All sums are kept up to date, so a move costs O(shards moved).
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/problem/machine.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/options.h"
#include "core/planner/solver/placed_loads.h"

namespace embla::planner {

class Layout {
 public:
  using Targets = absl::InlinedVector<std::uint32_t, 4>;
  static constexpr std::uint32_t kUnplaced = 0xffffffff;

  // One shard on a device, apart from those of tables that are everywhere or host-shaped.
  struct Item {
    std::uint32_t table = 0;
    std::uint32_t shard = 0;  // Index into targets(table).
    bool operator==(const Item&) const = default;
  };

  // Borrowed; outlive this object.
  Layout(const OptionSet& options, const Machine& machine);

  // Requires: the table is unplaced (or placed), and targets fit the option's shape.
  void Place(std::uint32_t table, std::uint32_t option, Targets targets);
  void Remove(std::uint32_t table);
  // Moves one shard, or one column block of a host-shaped table.
  void Move(std::uint32_t table, std::uint32_t shard, std::uint32_t target);

  bool placed(std::uint32_t table) const { return option_[table] != kUnplaced; }
  std::uint32_t option_number(std::uint32_t table) const { return option_[table]; }
  const Option& option(std::uint32_t table) const {
    return options_.all[options_.begin[table] + option_[table]];
  }
  const Targets& targets(std::uint32_t table) const { return targets_[table]; }

  Ticks work(std::uint32_t device) const { return base_work_ + loads_.work[device]; }
  Ticks load(std::uint32_t device) const { return Slowed(work(device), machine_.slowdown[device]); }
  Ticks network(std::uint32_t host) const {
    return loads_.network[host] + base_network_ * machine_.devices_of(host);
  }
  std::int64_t bytes(std::uint32_t device) const { return base_bytes_[0] + loads_.bytes[device]; }
  std::int64_t host_bytes(std::uint32_t host, std::size_t tier) const {
    return loads_.host_bytes[host][tier] + base_bytes_[tier] * machine_.devices_of(host);
  }
  const std::vector<Item>& items(std::uint32_t device) const { return items_[device]; }
  // Tables with a column block on every device of the host.
  const std::vector<Item>& host_items(std::uint32_t host) const { return host_items_[host]; }

  // Whether `count` more shards like this fit the device (and its host).
  bool FitsDevice(std::uint32_t device, const Option& option) const;
  bool FitsHost(std::uint32_t host, const Option& option, std::uint32_t count) const;
  // Load of the device, or of its host's network if that is more, with `extra` more work.
  Ticks LoadWith(std::uint32_t device, const Option& option) const {
    const Ticks load = Slowed(work(device) + option.work, machine_.slowdown[device]);
    if (option.host_work == 0) return load;
    return std::max(load, network(machine_.host_of[device]) + option.host_work);
  }

  // Whether the table's rules and its other shards allow this one on `device`; room is not asked
  // for.
  bool MayLie(Item item, std::uint32_t device) const;

  // The most loaded device or host network.
  struct Peak {
    Ticks load = 0;
    std::uint32_t device = 0;
    bool is_network = false;  // True: `device` is the host.
  };
  Peak FindPeak() const;

  const OptionSet& options() const { return options_; }
  const Machine& machine() const { return machine_; }
  // Choices, uses and max load; the proof is the caller's. Requires: every table is placed.
  Solution ToSolution() const;

 private:
  void AddEverywhere(const Option& option, const DeviceSet& set, int sign);
  void AddTarget(std::uint32_t table, std::uint32_t shard, int sign);

  const OptionSet& options_;
  const Machine& machine_;
  std::vector<std::uint32_t> option_;  // By table, into its options.
  std::vector<Targets> targets_;
  // Loads of the tables that are on every device; the loads below come on top.
  Ticks base_work_ = 0, base_network_ = 0;
  TierBytes base_bytes_{};
  PlacedLoads loads_;
  std::vector<std::vector<Item>> items_;
  std::vector<std::vector<Item>> host_items_;
};

}  // namespace embla::planner
