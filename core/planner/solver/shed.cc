#include "core/planner/solver/shed.h"

#include <algorithm>
#include <utility>

namespace embla::planner {
namespace {

constexpr std::size_t kTargets = 24;
constexpr std::size_t kSwapTargets = 8;

}  // namespace

Shedder::Shedder(Layout& layout, std::vector<std::int64_t> bytes, std::vector<Layout::Targets> home)
    : layout_(layout),
      options_(layout.options()),
      machine_(layout.machine()),
      bytes_(std::move(bytes)),
      home_(std::move(home)) {}

void Shedder::Run(Ticks target, std::int64_t budget) {
  while (operations_ < budget) {
    const Layout::Peak peak = layout_.FindPeak();
    operations_ += machine_.devices();
    if (peak.load <= target || peak.is_network) return;
    if (!Lower(peak.device, target)) return;
  }
}

std::int64_t Shedder::CostOf(Layout::Item item, std::uint32_t to) const {
  const Layout::Targets& home = home_[item.table];
  if (item.shard >= home.size() || home[item.shard] == Layout::kUnplaced) return 0;
  const std::uint32_t origin = home[item.shard];
  const bool was_home = layout_.targets(item.table)[item.shard] == origin;
  return (origin == to ? 0 : bytes_[item.table]) - (was_home ? 0 : bytes_[item.table]);
}

void Shedder::Offer(const Step& step, Step* best) const {
  if (step.gain <= 0) return;
  if (best->cost < 0) {
    *best = step;
    return;
  }
  // gain / cost; what costs nothing comes first, the larger gain before the smaller.
  const std::int64_t mine = std::max<std::int64_t>(step.cost, 0);
  const std::int64_t theirs = std::max<std::int64_t>(best->cost, 0);
  const Int128 left = static_cast<Int128>(step.gain) * theirs;
  const Int128 right = static_cast<Int128>(best->gain) * mine;
  if (left > right || (left == right && step.gain > best->gain)) *best = step;
}

void Shedder::ChooseTargets(std::uint32_t device, std::size_t count) {
  std::vector<std::pair<Ticks, std::uint32_t>> order;
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    if (d != device) order.emplace_back(layout_.load(d), d);
  }
  const std::size_t n = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  targets_.clear();
  for (std::size_t i = 0; i < n; ++i) targets_.push_back(order[i].second);
  operations_ += machine_.devices();
}

void Shedder::ConsiderMoves(std::uint32_t device, Ticks target, Step* best) {
  const Ticks need = layout_.load(device) - target;
  for (const Layout::Item item : layout_.items(device)) {
    const Option& option = layout_.option(item.table);
    const Ticks gain = std::min(Slowed(option.work, machine_.slowdown[device]), need);
    for (const std::uint32_t to : targets_) {
      ++operations_;
      if (layout_.LoadWith(to, option) > target) continue;
      if (!layout_.MayLie(item, to) || !layout_.FitsDevice(to, option)) continue;
      Offer({gain, std::max<std::int64_t>(0, CostOf(item, to)), item, {}, to, false}, best);
      break;  // The lightest that takes it.
    }
  }
}

void Shedder::ConsiderSwaps(std::uint32_t device, Ticks target, Step* best) {
  const Ticks need = layout_.load(device) - target;
  for (std::size_t k = 0; k < std::min(kSwapTargets, targets_.size()); ++k) {
    const std::uint32_t to = targets_[k];
    for (const Layout::Item a : layout_.items(device)) {
      const Option& mine = layout_.option(a.table);
      for (const Layout::Item b : layout_.items(to)) {
        ++operations_;
        const Option& theirs = layout_.option(b.table);
        if (a.table == b.table || theirs.work >= mine.work) continue;
        const Ticks here =
            Slowed(layout_.work(device) - mine.work + theirs.work, machine_.slowdown[device]);
        const Ticks there =
            Slowed(layout_.work(to) - theirs.work + mine.work, machine_.slowdown[to]);
        if (there > target) continue;
        const std::int64_t moved = mine.bytes[0] - theirs.bytes[0];
        if (layout_.bytes(to) + moved > machine_.capacity[to] ||
            layout_.bytes(device) - moved > machine_.capacity[device]) {
          continue;
        }
        const bool host_tiers = mine.bytes[1] + mine.bytes[2] + theirs.bytes[1] + theirs.bytes[2] +
                                    mine.host_work + theirs.host_work >
                                0;
        if (host_tiers && machine_.host_of[device] != machine_.host_of[to]) continue;
        if (!layout_.MayLie(a, to) || !layout_.MayLie(b, device)) continue;
        const std::int64_t cost = std::max<std::int64_t>(0, CostOf(a, to) + CostOf(b, device));
        Offer({std::min(layout_.load(device) - here, need), cost, a, b, to, true}, best);
      }
    }
  }
}

void Shedder::ConsiderRows(std::uint32_t device, Ticks target, Step* best) {
  const std::uint32_t host = machine_.host_of[device];
  for (const Layout::Item item : layout_.host_items(host)) {
    const Option& option = layout_.option(item.table);
    const Layout::Targets& used = layout_.targets(item.table);
    for (const std::uint32_t to : options_.devices_of(item.table).full_hosts) {
      if (to == host || machine_.devices_of(to) != option.cut.row_blocks) continue;
      if (options_.spread_of[item.table] != Spread::kAny &&
          std::find(used.begin(), used.end(), to) != used.end()) {
        continue;
      }
      bool fits = layout_.FitsHost(to, option, option.cut.row_blocks) &&
                  layout_.network(to) + option.host_work * option.cut.row_blocks <= target;
      for (std::uint32_t d = machine_.host_begin[to]; fits && d < machine_.host_begin[to + 1];
           ++d) {
        fits = Slowed(layout_.work(d) + option.work, machine_.slowdown[d]) <= target &&
               layout_.bytes(d) + option.bytes[0] <= machine_.capacity[d];
      }
      operations_ += machine_.devices_of(to);
      if (!fits) continue;
      // The gain adds up over the devices of the host that are above the target.
      Ticks gain = 0;
      for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
        gain += std::clamp<Ticks>(layout_.load(d) - target, 0,
                                  Slowed(option.work, machine_.slowdown[d]));
      }
      Offer({gain, std::max<std::int64_t>(0, CostOf(item, to)), item, {}, to, false}, best);
    }
  }
}

bool Shedder::Lower(std::uint32_t device, Ticks target) {
  ChooseTargets(device, kTargets);
  Step best;
  ConsiderMoves(device, target, &best);
  ConsiderRows(device, target, &best);
  if (best.cost < 0) ConsiderSwaps(device, target, &best);
  if (best.cost < 0) return false;
  layout_.Move(best.item.table, best.item.shard, best.to);
  if (best.swaps) layout_.Move(best.back.table, best.back.shard, device);
  return true;
}

std::int64_t Shedder::ShedBound(Ticks target) const {
  double bound = 0;
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    double surplus = static_cast<double>(layout_.load(d) - target);
    if (surplus <= 0) continue;
    std::vector<std::pair<double, double>> items;  // Bytes per load, load.
    const auto add = [&](Layout::Item item, std::int64_t parts) {
      const double load =
          static_cast<double>(Slowed(layout_.option(item.table).work, machine_.slowdown[d]));
      if (load <= 0) return;
      const bool free =
          home_[item.table].empty() || home_[item.table][item.shard] == Layout::kUnplaced;
      const std::int64_t bytes = free ? 0 : bytes_[item.table] / parts;
      items.emplace_back(static_cast<double>(bytes) / load, load);
    };
    for (const Layout::Item item : layout_.items(d)) add(item, 1);
    for (const Layout::Item item : layout_.host_items(machine_.host_of[d])) {
      add(item, layout_.option(item.table).cut.row_blocks);
    }
    std::sort(items.begin(), items.end());
    for (const auto& [per_load, load] : items) {
      const double shed = std::min(load, surplus);
      bound += shed * per_load;
      surplus -= shed;
      if (surplus <= 0) break;
    }
  }
  return static_cast<std::int64_t>(bound);
}

}  // namespace embla::planner
