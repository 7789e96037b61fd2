#include "core/planner/solver/improve.h"

#include <algorithm>

namespace embla::planner {
namespace {

constexpr std::size_t kTargets = 12;

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
    if (!lowered) return;
  }
}

bool Improver::MayLie(Layout::Item item, std::uint32_t device) const {
  if (options_.devices_of(item.table).has[device] == 0) return false;
  const Layout::Targets& targets = layout_.targets(item.table);
  const std::uint32_t host = machine_.host_of[device];
  if (layout_.option(item.table).shape == Shape::kOneHost && targets.size() > 1 &&
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

void Improver::ChooseTargets(std::uint32_t from, bool by_network) {
  std::vector<std::pair<Ticks, std::uint32_t>> order;
  order.reserve(machine_.devices());
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    if (d == from) continue;
    const Ticks network = layout_.network(machine_.host_of[d]);
    order.emplace_back(by_network ? network : std::max(layout_.load(d), network), d);
  }
  const std::size_t n = std::min(kTargets, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  targets_.clear();
  for (std::size_t i = 0; i < n; ++i) targets_.push_back(order[i].second);
  operations_ += machine_.devices();
}

const std::vector<Layout::Item>& Improver::SortedItems(std::uint32_t device) {
  std::vector<Layout::Item>& items = sorted_[device];
  if (fresh_[device] != 0) return items;
  items = layout_.items(device);
  operations_ += static_cast<std::int64_t>(items.size());
  std::sort(items.begin(), items.end(), [this](const Layout::Item& a, const Layout::Item& b) {
    const Ticks x = layout_.option(a.table).work, y = layout_.option(b.table).work;
    if (x != y) return x < y;
    return a.table != b.table ? a.table < b.table : a.shard < b.shard;
  });
  fresh_[device] = 1;
  return items;
}

void Improver::ConsiderMoves(std::uint32_t from, Ticks peak, Step* best) {
  for (const std::uint32_t to : targets_) {
    for (const Layout::Item item : SortedItems(from)) {
      const Option& option = layout_.option(item.table);
      ++operations_;
      const Ticks there = layout_.LoadWith(to, option);
      // Ascending work: from here on the target gets too much.
      if (there >= peak && option.host_work == 0) break;
      const Ticks here = Slowed(layout_.work(from) - option.work, machine_.slowdown[from]);
      const Ticks worst = std::max(here, there);
      if (worst >= peak || (best->found && worst >= best->worst)) continue;
      if (!MayLie(item, to) || !layout_.FitsDevice(to, option)) continue;
      *best = {worst, item, {}, to, 0, true, false};
    }
  }
}

void Improver::ConsiderSwap(Layout::Item item, std::uint32_t from, Layout::Item other,
                            std::uint32_t to, Ticks peak, Step* best) {
  const Option& a = layout_.option(item.table);
  const Option& b = layout_.option(other.table);
  ++operations_;
  if (item.table == other.table || b.work >= a.work) return;
  const Ticks here = Slowed(layout_.work(from) - a.work + b.work, machine_.slowdown[from]);
  const Ticks there = Slowed(layout_.work(to) - b.work + a.work, machine_.slowdown[to]);
  Ticks worst = std::max(here, there);
  if (a.host_work != 0 || b.host_work != 0) {
    const Ticks moved = a.host_work - b.host_work;
    if (machine_.host_of[from] != machine_.host_of[to]) {
      worst = std::max({worst, layout_.network(machine_.host_of[from]) - moved,
                        layout_.network(machine_.host_of[to]) + moved});
    }
  }
  if (worst >= peak || (best->found && worst >= best->worst)) return;
  if (!MayLie(item, to) || !MayLie(other, from)) return;
  if (layout_.bytes(to) - b.bytes[0] + a.bytes[0] > machine_.capacity[to] ||
      layout_.bytes(from) - a.bytes[0] + b.bytes[0] > machine_.capacity[from]) {
    return;
  }
  const std::uint32_t from_host = machine_.host_of[from], to_host = machine_.host_of[to];
  for (std::size_t r = 1; r < kTiers && from_host != to_host; ++r) {
    const std::int64_t moved = a.bytes[r] - b.bytes[r];
    if (layout_.host_bytes(to_host, r) + moved > machine_.host_capacity[to_host][r] ||
        layout_.host_bytes(from_host, r) - moved > machine_.host_capacity[from_host][r]) {
      return;
    }
  }
  *best = {worst, item, other, to, from, true, true};
}

void Improver::ConsiderSwaps(std::uint32_t from, Ticks peak, Step* best) {
  const std::vector<Layout::Item> mine = SortedItems(from);
  for (const std::uint32_t to : targets_) {
    const std::vector<Layout::Item>& theirs = SortedItems(to);
    // Half the difference moved evens the two out.
    const Ticks half = (layout_.work(from) - layout_.work(to)) / 2;
    if (half <= 0) continue;
    for (const Layout::Item item : mine) {
      const Ticks wanted = layout_.option(item.table).work - half;
      const auto at = std::lower_bound(theirs.begin(), theirs.end(), wanted,
                                       [this](const Layout::Item& other, Ticks work) {
                                         return layout_.option(other.table).work < work;
                                       });
      // Neighbours on both sides, as the nearest may not fit.
      const auto first = at - std::min<std::ptrdiff_t>(at - theirs.begin(), 2);
      const auto last = at + std::min<std::ptrdiff_t>(theirs.end() - at, 3);
      for (auto it = first; it != last; ++it) ConsiderSwap(item, from, *it, to, peak, best);
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
  ChooseTargets(device, false);
  Step best;
  ConsiderMoves(device, peak, &best);
  ConsiderSwaps(device, peak, &best);
  if (best.found) {
    Take(best);
    return true;
  }
  return MoveRows(machine_.host_of[device], peak) || MoveHostTables(device, peak) ||
         ChangeOption(device, false, peak);
}

bool Improver::LowerNetwork(std::uint32_t host, Ticks peak) {
  const std::uint32_t begin = machine_.host_begin[host];
  ChooseTargets(begin, true);
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
        if (!MayLie(item, to) || !layout_.FitsDevice(to, option)) continue;
        best = {worst, item, {}, to, 0, true, false};
      }
    }
  }
  if (best.found) {
    Take(best);
    return true;
  }
  if (MoveRows(host, peak)) return true;
  for (std::uint32_t d = begin; d < machine_.host_begin[host + 1]; ++d) {
    if (ChangeOption(d, true, peak)) return true;
  }
  return false;
}

bool Improver::MoveRows(std::uint32_t host, Ticks peak) {
  const std::vector<Layout::Item> rows = layout_.host_items(host);
  for (const Layout::Item item : rows) {
    const Option& option = layout_.option(item.table);
    if (option.work == 0) continue;
    std::uint32_t best = Layout::kUnplaced;
    Ticks best_worst = peak;
    for (const std::uint32_t to : options_.devices_of(item.table).full_hosts) {
      if (to == host || machine_.devices_of(to) != option.cut.row_blocks) continue;
      const Layout::Targets& used = layout_.targets(item.table);
      if (options_.spread_of[item.table] != Spread::kAny &&
          std::find(used.begin(), used.end(), to) != used.end()) {
        continue;
      }
      Ticks worst = layout_.network(to) + option.host_work * option.cut.row_blocks;
      bool fits = layout_.FitsHost(to, option, option.cut.row_blocks);
      for (std::uint32_t d = machine_.host_begin[to]; d < machine_.host_begin[to + 1]; ++d) {
        worst = std::max(worst, Slowed(layout_.work(d) + option.work, machine_.slowdown[d]));
        fits &= layout_.bytes(d) + option.bytes[0] <= machine_.capacity[d];
      }
      operations_ += machine_.devices_of(to);
      if (fits && worst < best_worst) {
        best = to;
        best_worst = worst;
      }
    }
    if (best != Layout::kUnplaced) {
      layout_.Move(item.table, item.shard, best);
      return true;
    }
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
  std::vector<Layout::Item> items = SortedItems(device);
  std::reverse(items.begin(), items.end());
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
