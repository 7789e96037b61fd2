#include "core/planner/solver/pack.h"

#include <algorithm>

#include "core/planner/solver/ratio.h"

namespace embla::planner {
Packer::Packer(Layout& layout, PackRule rule, Ticks target)
    : layout_(layout),
      options_(layout.options()),
      machine_(layout.machine()),
      rule_(rule),
      per_target_(Reciprocal(target)),
      per_mean_capacity_(Reciprocal(machine_.TotalCapacity()[0] / machine_.devices())) {
  if (rule == PackRule::kLoad) return;
  for (const std::int64_t bytes : machine_.capacity) per_capacity_.push_back(Reciprocal(bytes));
}

std::int64_t Packer::Score(std::uint32_t device, const Option& option) const {
  const Ticks load = layout_.LoadWith(device, option);
  if (rule_ == PackRule::kLoad) return load;
  const std::int64_t time = Ratio(load, per_target_);
  const std::int64_t space = Ratio(layout_.bytes(device) + option.bytes[0], per_capacity_[device]);
  if (rule_ == PackRule::kMaxNorm) return std::max(time, space);
  const std::int64_t time_before = Ratio(layout_.load(device), per_target_);
  const std::int64_t space_before = Ratio(layout_.bytes(device), per_capacity_[device]);
  return (time - time_before) * (time + time_before) +
         (space - space_before) * (space + space_before);
}

std::uint32_t Packer::BestDevice(const std::uint32_t* begin, const std::uint32_t* end,
                                 const Option& option, std::uint32_t table,
                                 const Layout::Targets& taken) {
  const Spread spread = options_.spread_of[table];
  std::uint32_t best = Layout::kUnplaced;
  std::int64_t best_score = INT64_MAX;
  operations_ += end - begin;
  const bool quick = quick_ && option.host_work == 0;
  const std::int64_t time = quick ? Ratio(option.work, per_target_) : 0;
  const std::int64_t space = quick ? Ratio(option.bytes[0], per_mean_capacity_) : 0;
  for (const std::uint32_t* it = begin; it != end; ++it) {
    const std::int64_t score = quick ? QuickScore(*it, time, space) : Score(*it, option);
    if (score >= best_score || !layout_.FitsDevice(*it, option)) continue;
    if (spread != Spread::kAny && std::any_of(taken.begin(), taken.end(), [&](std::uint32_t other) {
          return other == *it ||
                 (spread == Spread::kHosts && machine_.host_of[other] == machine_.host_of[*it]);
        })) {
      continue;
    }
    best_score = score;
    best = *it;
  }
  return best;
}

void Packer::RefreshAll() {
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    time_[d] = Ratio(layout_.load(d), per_target_);
    space_[d] = Ratio(layout_.bytes(d), per_capacity_[d]);
  }
}

void Packer::Refresh(std::uint32_t table) {
  if (PlacementOf(layout_.option(table).shape) != Placement::kShards) return RefreshAll();
  for (const std::uint32_t d : layout_.targets(table)) {
    time_[d] = Ratio(layout_.load(d), per_target_);
    space_[d] = Ratio(layout_.bytes(d), per_capacity_[d]);
  }
}

bool Packer::TryShards(std::uint32_t table, std::uint32_t number) {
  const Option& option = options_.of(table)[number];
  const auto& devices = options_.devices_of(table).devices;
  Layout::Targets targets;
  layout_.Place(table, number, {});
  // Shards go down one by one, so that each sees the ones before it.
  for (std::uint32_t i = 0; i < option.shards; ++i) {
    const std::uint32_t device =
        BestDevice(devices.data(), devices.data() + devices.size(), option, table, targets);
    layout_.Remove(table);
    if (device == Layout::kUnplaced) {
      if (quick_) RefreshAll();
      return false;
    }
    targets.push_back(device);
    layout_.Place(table, number, targets);
    if (quick_) Refresh(table);
  }
  return true;
}

bool Packer::TryOneHost(std::uint32_t table, std::uint32_t number) {
  const Option& option = options_.of(table)[number];
  const DeviceSet& set = options_.devices_of(table);
  std::vector<std::pair<Ticks, std::uint32_t>> order;  // Mean load, host.
  for (const std::uint32_t host : set.hosts) {
    Int128 sum = 0;
    for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
      sum += rule_ == PackRule::kLoad ? layout_.load(d) : Score(d, Option{});
    }
    order.emplace_back(static_cast<Ticks>(sum / machine_.devices_of(host)), host);
  }
  operations_ += machine_.devices();
  std::sort(order.begin(), order.end());
  for (const auto& [load, host] : order) {
    if (!layout_.FitsHost(host, option, option.shards)) continue;
    const auto begin =
        std::lower_bound(set.devices.begin(), set.devices.end(), machine_.host_begin[host]) -
        set.devices.begin();
    const auto end =
        std::lower_bound(set.devices.begin(), set.devices.end(), machine_.host_begin[host + 1]) -
        set.devices.begin();
    Layout::Targets targets;
    layout_.Place(table, number, {});
    while (targets.size() < option.shards) {
      const std::uint32_t device =
          BestDevice(set.devices.data() + begin, set.devices.data() + end, option, table, targets);
      layout_.Remove(table);
      if (device == Layout::kUnplaced) break;
      targets.push_back(device);
      layout_.Place(table, number, targets);
      if (quick_) Refresh(table);
    }
    if (layout_.placed(table)) return true;
    if (quick_) RefreshAll();
  }
  return false;
}

bool Packer::TryRows(std::uint32_t table, std::uint32_t number) {
  const Option& option = options_.of(table)[number];
  const DeviceSet& set = options_.devices_of(table);
  const bool apart = options_.spread_of[table] != Spread::kAny;
  Layout::Targets targets;
  layout_.Place(table, number, {});
  for (std::uint32_t block = 0; block < option.cut.column_blocks; ++block) {
    std::uint32_t best = Layout::kUnplaced;
    std::int64_t best_score = INT64_MAX;
    for (const std::uint32_t host : set.full_hosts) {
      if (machine_.devices_of(host) != option.cut.row_blocks) continue;
      if (apart && std::find(targets.begin(), targets.end(), host) != targets.end()) continue;
      if (!layout_.FitsHost(host, option, option.cut.row_blocks)) continue;
      std::int64_t worst = 0;
      bool fits = true;
      for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
        worst = std::max(worst, Score(d, option));
        fits &= layout_.bytes(d) + option.bytes[0] <= machine_.capacity[d];
      }
      if (!fits || worst >= best_score) continue;
      best_score = worst;
      best = host;
    }
    operations_ += machine_.devices();
    layout_.Remove(table);
    if (best == Layout::kUnplaced) return false;
    targets.push_back(best);
    layout_.Place(table, number, targets);
  }
  return true;
}

bool Packer::TryEverywhere(std::uint32_t table, std::uint32_t number) {
  const DeviceSet& set = options_.devices_of(table);
  operations_ += static_cast<std::int64_t>(set.devices.size());
  layout_.Place(table, number, {});
  const auto full = [&](std::uint32_t d) { return layout_.bytes(d) > machine_.capacity[d]; };
  const auto host_full = [&](std::uint32_t h) {
    return layout_.host_bytes(h, 1) > machine_.host_capacity[h][1] ||
           layout_.host_bytes(h, 2) > machine_.host_capacity[h][2];
  };
  if (std::none_of(set.devices.begin(), set.devices.end(), full) &&
      std::none_of(set.hosts.begin(), set.hosts.end(), host_full)) {
    return true;
  }
  layout_.Remove(table);
  return false;
}

bool Packer::TryPlace(std::uint32_t table, std::uint32_t number) {
  switch (options_.of(table)[number].shape) {
    case Shape::kDevices:
      return TryShards(table, number);
    case Shape::kOneHost:
      return TryOneHost(table, number);
    case Shape::kHostRows:
    case Shape::kGrid:
      return TryRows(table, number);
    case Shape::kEverywhere:
      break;
  }
  return TryEverywhere(table, number);
}

bool Packer::PlaceOther(std::uint32_t table, std::uint32_t refused) {
  const auto options = options_.of(table);
  std::vector<std::pair<Ticks, std::uint32_t>> order;
  for (std::uint32_t o = 0; o < options.size(); ++o) {
    if (o != refused) order.emplace_back(options[o].total_work(), o);
  }
  std::sort(order.begin(), order.end());
  return std::any_of(order.begin(), order.end(),
                     [&](const auto& entry) { return TryPlace(table, entry.second); });
}

std::int64_t Packer::SizeOf(const Option& option) const {
  if (rule_ == PackRule::kLoad) return option.work;
  return std::max(Ratio(option.work, per_target_), Ratio(option.bytes[0], per_mean_capacity_));
}

bool Packer::PlaceAll(const std::vector<std::uint32_t>& picks) {
  struct Entry {
    int group;  // 0 everywhere, 1 host-shaped, 2 shards.
    std::int64_t size;
    std::uint32_t table;
  };
  std::vector<Entry> order(picks.size());
  for (std::uint32_t t = 0; t < picks.size(); ++t) {
    const Option& option = options_.of(t)[picks[t]];
    const int group = option.shape == Shape::kEverywhere ? 0
                      : option.shape == Shape::kDevices  ? 2
                                                         : 1;
    order[t] = {group, SizeOf(option), t};
  }
  std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    if (a.group != b.group) return a.group < b.group;
    return a.size != b.size ? a.size > b.size : a.table < b.table;
  });
  const bool equal =
      std::equal(machine_.capacity.begin() + 1, machine_.capacity.end(),
                 machine_.capacity.begin()) &&
      std::equal(machine_.slowdown.begin() + 1, machine_.slowdown.end(), machine_.slowdown.begin());
  quick_ = equal && rule_ != PackRule::kLoad && machine_.slowdown.front() == kSlowdownOne;
  time_.assign(quick_ ? machine_.devices() : 0, 0);
  space_ = time_;
  bool placed_all = true;
  for (const Entry& entry : order) {
    const std::uint32_t pick = picks[entry.table];
    placed_all = TryPlace(entry.table, pick) || PlaceOther(entry.table, pick);
    if (!placed_all) break;
    if (quick_) Refresh(entry.table);
  }
  quick_ = false;
  return placed_all;
}

}  // namespace embla::planner
