#include "core/planner/solver/improve.h"

#include <algorithm>

namespace embla::planner {
namespace {

constexpr std::size_t kFewTargets = 12;
constexpr std::size_t kManyTargets = 128;

}  // namespace

Improver::Improver(Layout& layout, PackRule rule)
    : layout_(layout),
      options_(layout.options()),
      machine_(layout.machine()),
      packer_(layout, rule, std::max<Ticks>(1, layout.FindPeak().load)),
      sorted_(machine_.devices()),
      fresh_(machine_.devices(), 0) {}

void Improver::Run(Ticks goal, std::int64_t budget) {
  while (operations_ + packer_.operations() < budget) {
    const Layout::Peak peak = layout_.FindPeak();
    operations_ += machine_.devices();
    if (peak.load <= goal) return;
    const bool lowered = peak.is_network ? LowerNetwork(peak.device, peak.load)
                                         : LowerDevice(peak.device, peak.load);
    if (!lowered && !UseFreeMemory()) return;
  }
}

void Improver::ChooseTargets(std::uint32_t from, bool by_network, std::size_t count) {
  std::vector<std::pair<Ticks, std::uint32_t>> order;
  order.reserve(machine_.devices());
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    if (d == from) continue;
    const Ticks network = layout_.network(machine_.host_of[d]);
    order.emplace_back(by_network ? network : std::max(layout_.load(d), network), d);
  }
  const std::size_t n = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  targets_.clear();
  for (std::size_t i = 0; i < n; ++i) targets_.push_back(order[i].second);
  operations_ += machine_.devices();
}

const std::vector<Improver::Weighed>& Improver::SortedItems(std::uint32_t device) {
  std::vector<Weighed>& items = sorted_[device];
  if (fresh_[device] != 0) return items;
  items.clear();
  for (const Layout::Item item : layout_.items(device)) {
    const Option& option = layout_.option(item.table);
    items.push_back({option.work, option.host_work, option.bytes, item});
  }
  operations_ += static_cast<std::int64_t>(items.size()) * 8;
  std::sort(items.begin(), items.end(), [](const Weighed& a, const Weighed& b) {
    if (a.work != b.work) return a.work < b.work;
    return a.item.table != b.item.table ? a.item.table < b.item.table : a.item.shard < b.item.shard;
  });
  fresh_[device] = 1;
  return items;
}

void Improver::ConsiderMoves(std::uint32_t from, Ticks peak, Step* best) {
  for (const std::uint32_t to : targets_) {
    for (const Weighed& one : SortedItems(from)) {
      ++operations_;
      const Ticks loaded = Slowed(layout_.work(to) + one.work, machine_.slowdown[to]);
      if (loaded >= peak) break;  // Ascending work: from here on it is too much.
      const Option& option = layout_.option(one.item.table);
      const Ticks there = std::max(loaded, layout_.LoadWith(to, option));
      const Ticks here = Slowed(layout_.work(from) - one.work, machine_.slowdown[from]);
      const Ticks worst = std::max(here, there);
      if (worst >= peak || (best->found && worst >= best->worst)) continue;
      if (!layout_.MayLie(one.item, to) || !layout_.FitsDevice(to, option)) continue;
      *best = {worst, one.item, {}, to, 0, true, false};
    }
  }
}

void Improver::ConsiderSwap(const Weighed& a, std::uint32_t from, const Weighed& b,
                            std::uint32_t to, Ticks peak, Step* best) {
  ++operations_;
  if (b.work >= a.work || a.item.table == b.item.table) return;
  const Ticks here = Slowed(layout_.work(from) - a.work + b.work, machine_.slowdown[from]);
  const Ticks there = Slowed(layout_.work(to) - b.work + a.work, machine_.slowdown[to]);
  Ticks worst = std::max(here, there);
  if (worst >= peak || (best->found && worst >= best->worst)) return;
  if (layout_.bytes(to) - b.bytes[0] + a.bytes[0] > machine_.capacity[to] ||
      layout_.bytes(from) - a.bytes[0] + b.bytes[0] > machine_.capacity[from]) {
    return;
  }
  const std::uint32_t from_host = machine_.host_of[from], to_host = machine_.host_of[to];
  if (from_host != to_host) {
    const Ticks network = a.host_work - b.host_work;
    worst = std::max({worst, network == 0 ? 0 : layout_.network(from_host) - network,
                      network == 0 ? 0 : layout_.network(to_host) + network});
    if (worst >= peak || (best->found && worst >= best->worst)) return;
    for (std::size_t r = 1; r < kTiers; ++r) {
      const std::int64_t moved = a.bytes[r] - b.bytes[r];
      if (layout_.host_bytes(to_host, r) + moved > machine_.host_capacity[to_host][r] ||
          layout_.host_bytes(from_host, r) - moved > machine_.host_capacity[from_host][r]) {
        return;
      }
    }
  }
  if (!layout_.MayLie(a.item, to) || !layout_.MayLie(b.item, from)) return;
  *best = {worst, a.item, b.item, to, from, true, true};
}

void Improver::ConsiderSwaps(std::uint32_t from, Ticks peak, std::ptrdiff_t reach, Step* best) {
  const std::vector<Weighed>& mine = SortedItems(from);
  for (const std::uint32_t to : targets_) {
    const std::vector<Weighed>& theirs = SortedItems(to);
    // Half the difference moved evens the two out.
    const Ticks half = (layout_.work(from) - layout_.work(to)) / 2;
    if (half <= 0) continue;
    for (const Weighed& one : mine) {
      const Ticks wanted = one.work - half;
      const auto at =
          std::lower_bound(theirs.begin(), theirs.end(), wanted,
                           [](const Weighed& other, Ticks work) { return other.work < work; });
      const auto first = at - std::min<std::ptrdiff_t>(at - theirs.begin(), reach);
      const auto last = at + std::min<std::ptrdiff_t>(theirs.end() - at, reach + 1);
      for (auto it = first; it != last; ++it) ConsiderSwap(one, from, *it, to, peak, best);
    }
  }
}

void Improver::Take(const Step& step) {
  const auto move = [this](Layout::Item item, std::uint32_t target) {
    fresh_[layout_.targets(item.table)[item.shard]] = 0;
    fresh_[target] = 0;
    layout_.Move(item.table, item.shard, target);
  };
  move(step.move, step.target);
  if (step.swaps) move(step.back, step.back_target);
}

bool Improver::LowerDevice(std::uint32_t device, Ticks peak) {
  // From cheap to thorough: with full memories the nearest swap seldom fits.
  static constexpr struct {
    std::size_t targets;
    std::ptrdiff_t reach;
  } kEfforts[] = {{kFewTargets, 2}, {kFewTargets, 1 << 20}, {kManyTargets, 2}, {kManyTargets, 32}};
  std::size_t looked_at = 0;
  for (const auto& effort : kEfforts) {
    if (effort.targets > kFewTargets && looked_at + 1 >= machine_.devices()) break;
    ChooseTargets(device, false, effort.targets);
    looked_at = targets_.size();
    Step best;
    if (effort.reach <= 2) ConsiderMoves(device, peak, &best);
    ConsiderSwaps(device, peak, effort.reach, &best);
    if (!best.found) continue;
    Take(best);
    return true;
  }
  return MoveRows(machine_.host_of[device], peak) || SwapRows(machine_.host_of[device], peak) ||
         MoveHostTables(device, peak) || ChangeOption(device, false, peak);
}

bool Improver::LowerNetwork(std::uint32_t host, Ticks peak) {
  const std::uint32_t begin = machine_.host_begin[host];
  ChooseTargets(begin, true, kManyTargets);
  Step best;
  for (std::uint32_t d = begin; d < machine_.host_begin[host + 1]; ++d) {
    for (const std::uint32_t to : targets_) {
      if (machine_.host_of[to] == host) continue;
      for (const Layout::Item item : layout_.items(d)) {
        const Option& option = layout_.option(item.table);
        ++operations_;
        const Ticks worst =
            std::max(layout_.LoadWith(to, option), layout_.network(host) - option.host_work);
        if (option.host_work == 0 || worst >= peak || (best.found && worst >= best.worst)) continue;
        if (!layout_.MayLie(item, to) || !layout_.FitsDevice(to, option)) continue;
        best = {worst, item, {}, to, 0, true, false};
      }
    }
  }
  if (best.found) {
    Take(best);
    return true;
  }
  if (MoveRows(host, peak) || SwapRows(host, peak)) return true;
  for (std::uint32_t d = begin; d < machine_.host_begin[host + 1]; ++d) {
    if (ChangeOption(d, true, peak)) return true;
  }
  return false;
}

bool Improver::MoveHostTables(std::uint32_t from, Ticks peak) {
  const std::vector<Layout::Item> items = layout_.items(from);
  for (const Layout::Item item : items) {
    const Option& option = layout_.option(item.table);
    if (option.shape != Shape::kOneHost || option.shards == 1 || option.work == 0) continue;
    if (Replace(item.table, layout_.option_number(item.table), peak)) return true;
  }
  return false;
}

bool Improver::ChangeOption(std::uint32_t device, bool by_network, Ticks peak) {
  // Largest first: their change gives the most.
  std::vector<Layout::Item> items;
  for (const Weighed& one : SortedItems(device)) items.insert(items.begin(), one.item);
  for (const Layout::Item row : layout_.host_items(machine_.host_of[device])) items.push_back(row);
  for (const Layout::Item item : items) {
    const Option& now = layout_.option(item.table);
    if ((by_network ? now.host_work : now.work) == 0) continue;
    const std::uint32_t used = layout_.option_number(item.table);
    const std::uint32_t count = static_cast<std::uint32_t>(options_.of(item.table).size());
    for (std::uint32_t o = 0; o < count; ++o) {
      if (o != used && Replace(item.table, o, peak)) return true;
    }
  }
  return false;
}

bool Improver::UseFreeMemory() {
  struct Change {
    double gain;  // Work saved per byte: an order, nothing more.
    std::uint32_t table, option;
  };
  std::vector<Change> changes;
  for (std::uint32_t t = 0; t < options_.tables(); ++t) {
    const Option& now = layout_.option(t);
    const auto options = options_.of(t);
    operations_ += static_cast<std::int64_t>(options.size());
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      const Option& other = options[o];
      if (other.work >= now.work || other.shape != now.shape || other.shards != now.shards ||
          other.cut.row_blocks != now.cut.row_blocks || other.host_work > now.host_work) {
        continue;
      }
      const std::int64_t bytes = std::max<std::int64_t>(1, other.bytes[0] - now.bytes[0]);
      changes.push_back(
          {static_cast<double>(now.work - other.work) / static_cast<double>(bytes), t, o});
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.gain != b.gain ? a.gain > b.gain
                            : std::pair(a.table, a.option) < std::pair(b.table, b.option);
  });
  bool changed = false;
  for (const Change& change : changes) {
    if (options_.of(change.table)[change.option].work >= layout_.option(change.table).work)
      continue;
    changed |= Exchange(change.table, change.option);
  }
  return changed;
}

bool Improver::Exchange(std::uint32_t table, std::uint32_t option) {
  const std::uint32_t old_option = layout_.option_number(table);
  const Layout::Targets targets = layout_.targets(table);
  layout_.Remove(table);
  layout_.Place(table, option, targets);
  const auto full = [&](std::uint32_t d) {
    const std::uint32_t host = machine_.host_of[d];
    return layout_.bytes(d) > machine_.capacity[d] ||
           layout_.host_bytes(host, 1) > machine_.host_capacity[host][1] ||
           layout_.host_bytes(host, 2) > machine_.host_capacity[host][2];
  };
  bool fits = true;
  ForEachDevice(table, [&](std::uint32_t d) { fits &= !full(d); });
  if (fits) {
    ForEachDevice(table, [&](std::uint32_t d) { fresh_[d] = 0; });
    return true;
  }
  layout_.Remove(table);
  layout_.Place(table, old_option, targets);
  return false;
}

template <typename Visit>
void Improver::ForEachDevice(std::uint32_t table, const Visit& visit) {
  const Placement placement = PlacementOf(layout_.option(table).shape);
  if (placement == Placement::kEverywhere) {
    for (const std::uint32_t d : options_.devices_of(table).devices) visit(d);
    operations_ += machine_.devices();
    return;
  }
  for (const std::uint32_t target : layout_.targets(table)) {
    if (placement == Placement::kShards) {
      visit(target);
      continue;
    }
    for (std::uint32_t d = machine_.host_begin[target]; d < machine_.host_begin[target + 1]; ++d) {
      visit(d);
    }
  }
  ++operations_;
}

Ticks Improver::WorstTouched(std::uint32_t table) const {
  const Option& option = layout_.option(table);
  if (option.shape == Shape::kEverywhere) return layout_.FindPeak().load;
  Ticks worst = 0;
  for (const std::uint32_t target : layout_.targets(table)) {
    const bool row = PlacementOf(option.shape) == Placement::kHosts;
    const std::uint32_t host = row ? target : machine_.host_of[target];
    worst = std::max(worst, layout_.network(host));
    if (!row) worst = std::max(worst, layout_.load(target));
    for (std::uint32_t d = machine_.host_begin[host]; row && d < machine_.host_begin[host + 1];
         ++d) {
      worst = std::max(worst, layout_.load(d));
    }
  }
  return worst;
}

bool Improver::Replace(std::uint32_t table, std::uint32_t option, Ticks peak) {
  const std::uint32_t old_option = layout_.option_number(table);
  const Layout::Targets old_targets = layout_.targets(table);
  layout_.Remove(table);
  operations_ += machine_.devices();
  if (packer_.TryPlace(table, option)) {
    if (WorstTouched(table) < peak) {
      std::fill(fresh_.begin(), fresh_.end(), 0);
      return true;
    }
    layout_.Remove(table);
  }
  layout_.Place(table, old_option, old_targets);
  return false;
}

}  // namespace embla::planner
