#include "core/planner/solver/rebalance.h"

#include <algorithm>
#include <utility>

#include "core/planner/solver/ratio.h"

namespace embla::planner {
namespace {

constexpr int kRounds = 40;

}  // namespace

Rebalancer::Rebalancer(Layout& layout, Ticks target)
    : layout_(layout), machine_(layout.machine()), per_target_(Reciprocal(target)) {}

void Rebalancer::Run(Ticks goal, std::int64_t budget) {
  std::vector<std::pair<Ticks, std::uint32_t>> order(machine_.devices());
  for (int round = 0; round < kRounds && operations_ < budget; ++round) {
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) order[d] = {layout_.load(d), d};
    std::sort(order.begin(), order.end());
    operations_ += machine_.devices();
    const Ticks peak = order.back().first;
    if (peak <= goal) return;
    // Alternate partners, so that a pair that is stuck is not the same pair next time.
    const std::size_t shift = static_cast<std::size_t>(round % 3);
    bool changed = false;
    for (std::size_t k = 0; k + shift < order.size() / 2; ++k) {
      const auto& [heavy, first] = order[order.size() - 1 - k];
      const auto& [light, second] = order[k + shift];
      if (heavy <= goal || heavy - light <= heavy >> 14) break;
      changed |= Split(first, second);
    }
    if (!changed && shift == 2) return;
  }
}

void Rebalancer::Collect(std::uint32_t device, std::uint32_t other) {
  const std::int64_t per_capacity = Reciprocal(machine_.capacity[device]);
  const OptionSet& options = layout_.options();
  for (const Layout::Item item : layout_.items(device)) {
    const Option& option = layout_.option(item.table);
    const bool free = options.spread_of[item.table] == Spread::kAny &&
                      options.devices_of(item.table).has[other] != 0 &&
                      (option.shape == Shape::kDevices || option.shards == 1);
    if (!free) continue;
    const std::int64_t time = Ratio(option.work, per_target_);
    const std::int64_t space = Ratio(option.bytes[0], per_capacity);
    loose_.push_back({std::max(time, space), time, space, item});
  }
}

bool Rebalancer::Split(std::uint32_t first, std::uint32_t second) {
  loose_.clear();
  Collect(first, second);
  Collect(second, first);
  operations_ += static_cast<std::int64_t>(loose_.size()) * 8;
  std::sort(loose_.begin(), loose_.end(), [](const Loose& a, const Loose& b) {
    if (a.size != b.size) return a.size > b.size;
    return std::pair(a.item.table, a.item.shard) < std::pair(b.item.table, b.item.shard);
  });
  // The fuller the memories, the more an even split of bytes counts.
  for (const std::int64_t weight : {1, 4, 16}) {
    Assign({first, second}, weight);
    if (Take(first, second)) return true;
  }
  return false;
}

void Rebalancer::Assign(std::array<std::uint32_t, 2> devices, std::int64_t space_weight) {
  std::array<std::int64_t, 2> time, space;
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t d = devices[side];
    time[side] = Ratio(layout_.load(d), per_target_);
    space[side] = Ratio(layout_.bytes(d), Reciprocal(machine_.capacity[d]));
  }
  const auto slowed = [&](const Loose& one, int side) {
    return Slowed(one.time, machine_.slowdown[devices[side]]);
  };
  // What cannot move stays underneath.
  for (const Loose& one : loose_) {
    const int side = layout_.targets(one.item.table)[one.item.shard] == devices[1] ? 1 : 0;
    time[side] -= slowed(one, side);
    space[side] -= one.space;
  }
  operations_ += static_cast<std::int64_t>(loose_.size()) * 2;
  for (Loose& one : loose_) {
    const auto growth = [&](int side) {
      const std::int64_t more = slowed(one, side);
      return more * (2 * time[side] + more) +
             space_weight * one.space * (2 * space[side] + one.space);
    };
    const int side = growth(1) < growth(0) ? 1 : 0;
    one.on_second = side == 1;
    time[side] += slowed(one, side);
    space[side] += one.space;
  }
}

bool Rebalancer::Take(std::uint32_t first, std::uint32_t second) {
  const auto worst = [&] {
    const std::uint32_t a = machine_.host_of[first], b = machine_.host_of[second];
    return std::max(
        {layout_.load(first), layout_.load(second), layout_.network(a), layout_.network(b)});
  };
  const auto fits = [&](std::uint32_t d) {
    const std::uint32_t host = machine_.host_of[d];
    return layout_.bytes(d) <= machine_.capacity[d] &&
           layout_.host_bytes(host, 1) <= machine_.host_capacity[host][1] &&
           layout_.host_bytes(host, 2) <= machine_.host_capacity[host][2];
  };
  const Ticks before = worst();
  std::vector<std::pair<Layout::Item, std::uint32_t>> undo;
  for (const Loose& one : loose_) {
    const std::uint32_t from = layout_.targets(one.item.table)[one.item.shard];
    const std::uint32_t to = one.on_second ? second : first;
    if (from == to) continue;
    undo.emplace_back(one.item, from);
    layout_.Move(one.item.table, one.item.shard, to);
  }
  operations_ += static_cast<std::int64_t>(undo.size()) * 8;
  if (fits(first) && fits(second) && worst() < before) return true;
  for (const auto& [item, from] : undo) layout_.Move(item.table, item.shard, from);
  return false;
}

}  // namespace embla::planner
