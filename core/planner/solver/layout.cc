#include "core/planner/solver/layout.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace embla::planner {

Layout::Layout(const OptionSet& options, const Machine& machine)
    : options_(options),
      machine_(machine),
      option_(options.tables(), kUnplaced),
      targets_(options.tables()),
      loads_(machine),
      items_(machine.devices()),
      host_items_(machine.hosts()) {}

void Layout::AddEverywhere(const Option& option, const DeviceSet& set, int sign) {
  if (!set.HasAll()) {
    for (const std::uint32_t d : set.devices) loads_.AddShard(option, d, sign);
    return;
  }
  base_work_ += sign * option.work;
  base_network_ += sign * option.host_work;
  for (std::size_t r = 0; r < kTiers; ++r) base_bytes_[r] += sign * option.bytes[r];
}

void Layout::AddTarget(std::uint32_t table, std::uint32_t shard, int sign) {
  const Option& used = option(table);
  const std::uint32_t target = targets_[table][shard];
  const bool row = PlacementOf(used.shape) == Placement::kHosts;
  if (row) {
    loads_.AddRow(used, target, sign);
  } else {
    loads_.AddShard(used, target, sign);
  }
  std::vector<Item>& items = row ? host_items_[target] : items_[target];
  const Item item{table, shard};
  if (sign > 0) {
    items.push_back(item);
    return;
  }
  const auto it = std::find(items.begin(), items.end(), item);
  EMBLA_CHECK(it != items.end());
  *it = items.back();
  items.pop_back();
}

void Layout::Place(std::uint32_t table, std::uint32_t option_number, Targets targets) {
  EMBLA_CHECK(!placed(table));
  option_[table] = option_number;
  targets_[table] = std::move(targets);
  if (option(table).shape == Shape::kEverywhere) {
    AddEverywhere(option(table), options_.devices_of(table), +1);
    return;
  }
  for (std::uint32_t i = 0; i < targets_[table].size(); ++i) AddTarget(table, i, +1);
}

void Layout::Remove(std::uint32_t table) {
  EMBLA_CHECK(placed(table));
  if (option(table).shape == Shape::kEverywhere) {
    AddEverywhere(option(table), options_.devices_of(table), -1);
  } else {
    for (std::uint32_t i = 0; i < targets_[table].size(); ++i) AddTarget(table, i, -1);
  }
  option_[table] = kUnplaced;
  targets_[table].clear();
}

void Layout::Move(std::uint32_t table, std::uint32_t shard, std::uint32_t target) {
  AddTarget(table, shard, -1);
  targets_[table][shard] = target;
  AddTarget(table, shard, +1);
}

bool Layout::FitsDevice(std::uint32_t device, const Option& option) const {
  if (bytes(device) + option.bytes[0] > machine_.capacity[device]) return false;
  if (option.bytes[1] == 0 && option.bytes[2] == 0) return true;
  const std::uint32_t host = machine_.host_of[device];
  const TierBytes& capacity = machine_.host_capacity[host];
  return host_bytes(host, 1) + option.bytes[1] <= capacity[1] &&
         host_bytes(host, 2) + option.bytes[2] <= capacity[2];
}

bool Layout::FitsHost(std::uint32_t host, const Option& option, std::uint32_t count) const {
  const TierBytes& capacity = machine_.host_capacity[host];
  for (std::size_t r = 1; r < kTiers; ++r) {
    if (host_bytes(host, r) + option.bytes[r] * count > capacity[r]) return false;
  }
  return true;
}

bool Layout::MayLie(Item item, std::uint32_t device) const {
  if (options_.devices_of(item.table).has[device] == 0) return false;
  const Targets& targets = this->targets(item.table);
  const std::uint32_t host = machine_.host_of[device];
  if (this->option(item.table).shape == Shape::kOneHost && targets.size() > 1 &&
      machine_.host_of[targets[item.shard]] != host) {
    return false;
  }
  const Spread spread = options_.spread_of[item.table];
  if (spread == Spread::kAny) return true;
  for (std::uint32_t i = 0; i < targets.size(); ++i) {
    if (i == item.shard) continue;
    if (targets[i] == device) return false;
    if (spread == Spread::kHosts && machine_.host_of[targets[i]] == host) return false;
  }
  return true;
}

Layout::Peak Layout::FindPeak() const {
  Peak peak{-1, 0, false};
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    if (const Ticks l = load(d); l > peak.load) peak = {l, d, false};
  }
  for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
    if (const Ticks l = network(h); l > peak.load) peak = {l, h, true};
  }
  return peak;
}

Solution Layout::ToSolution() const {
  Solution solution;
  solution.choices.reserve(option_.size());
  for (std::uint32_t t = 0; t < option_.size(); ++t) {
    const Option& used = option(t);
    solution.choices.push_back({used.cut, PlacementOf(used.shape), targets_[t]});
  }
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    solution.devices.push_back({load(d), bytes(d)});
  }
  for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
    solution.hosts.push_back({network(h), {0, host_bytes(h, 1), host_bytes(h, 2)}});
  }
  solution.max_load = std::max<Ticks>(0, FindPeak().load);
  return solution;
}

}  // namespace embla::planner
