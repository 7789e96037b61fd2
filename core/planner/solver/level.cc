#include "core/planner/solver/level.h"

#include <algorithm>
#include <optional>

namespace embla::planner {
namespace {

// The shard of `from` whose move to `to` leaves the least on the higher of the two; none when no
// move lowers it.
std::optional<Layout::Item> BestMove(const Layout& layout, std::uint32_t from, std::uint32_t to) {
  const OptionSet& options = layout.options();
  const Machine& machine = layout.machine();
  Ticks least = layout.load(from);
  std::optional<Layout::Item> best;
  for (const Layout::Item& item : layout.items(from)) {
    const Option& option = layout.option(item.table);
    const bool free = options.spread_of[item.table] == Spread::kAny &&
                      options.devices_of(item.table).has[to] != 0;
    if (!free || !layout.FitsDevice(to, option)) continue;
    const Ticks left = Slowed(layout.work(from) - option.work, machine.slowdown[from]);
    const Ticks grown = Slowed(layout.work(to) + option.work, machine.slowdown[to]);
    if (std::max(left, grown) >= least) continue;
    least = std::max(left, grown);
    best = item;
  }
  return best;
}

void LevelHost(std::uint32_t begin, std::uint32_t end, Layout* layout) {
  std::size_t steps = 0;
  for (std::uint32_t d = begin; d < end; ++d) steps += layout->items(d).size();
  // Every step lowers a device; few of them move the same shard again.
  for (steps *= 2; steps > 0; --steps) {
    std::uint32_t most = begin, least = begin;
    for (std::uint32_t d = begin; d < end; ++d) {
      if (layout->load(d) > layout->load(most)) most = d;
      if (layout->load(d) < layout->load(least)) least = d;
    }
    const std::optional<Layout::Item> item = BestMove(*layout, most, least);
    if (!item) return;
    layout->Move(item->table, item->shard, least);
  }
}

}  // namespace

void LevelHosts(Layout* layout) {
  const Machine& machine = layout->machine();
  for (std::uint32_t host = 0; host < machine.hosts(); ++host) {
    if (layout->network(host) == 0) continue;
    LevelHost(machine.host_begin[host], machine.host_begin[host + 1], layout);
  }
}

}  // namespace embla::planner
