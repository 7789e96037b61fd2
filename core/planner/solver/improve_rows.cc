// Improver's steps with tables that take a share of every device of a host.
#include <algorithm>
#include <vector>

#include "core/planner/solver/improve.h"

namespace embla::planner {

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

bool Improver::RowsFit(std::uint32_t host, const Option& in, const Option& out,
                       Ticks* worst) const {
  const std::int64_t count = in.cut.row_blocks;
  *worst = layout_.network(host) + (in.host_work - out.host_work) * count;
  for (std::size_t r = 1; r < kTiers; ++r) {
    if (layout_.host_bytes(host, r) + (in.bytes[r] - out.bytes[r]) * count >
        machine_.host_capacity[host][r]) {
      return false;
    }
  }
  for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
    *worst = std::max(*worst, Slowed(layout_.work(d) + in.work - out.work, machine_.slowdown[d]));
    if (layout_.bytes(d) + in.bytes[0] - out.bytes[0] > machine_.capacity[d]) return false;
  }
  return true;
}

bool Improver::SwapRows(std::uint32_t host, Ticks peak) {
  struct Swap {
    Layout::Item mine, theirs;
    std::uint32_t to = 0;
  } best;
  Ticks best_worst = peak;
  const auto may_lie = [this](Layout::Item item, std::uint32_t target) {
    const auto& hosts = options_.devices_of(item.table).full_hosts;
    const Layout::Targets& used = layout_.targets(item.table);
    return std::binary_search(hosts.begin(), hosts.end(), target) &&
           (options_.spread_of[item.table] == Spread::kAny ||
            std::find(used.begin(), used.end(), target) == used.end());
  };
  for (std::uint32_t to = 0; to < machine_.hosts(); ++to) {
    if (to == host) continue;
    for (const Layout::Item mine : layout_.host_items(host)) {
      const Option& a = layout_.option(mine.table);
      if (machine_.devices_of(to) != a.cut.row_blocks || !may_lie(mine, to)) continue;
      for (const Layout::Item theirs : layout_.host_items(to)) {
        ++operations_;
        const Option& b = layout_.option(theirs.table);
        if (b.work >= a.work || b.cut.row_blocks != a.cut.row_blocks) continue;
        if (theirs.table == mine.table || !may_lie(theirs, host)) continue;
        operations_ += std::int64_t{2} * machine_.devices_of(to);
        Ticks here = 0, there = 0;
        if (!RowsFit(to, a, b, &there) || !RowsFit(host, b, a, &here)) continue;
        const Ticks worst = std::max(here, there);
        if (worst >= best_worst) continue;
        best_worst = worst;
        best = {mine, theirs, to};
      }
    }
  }
  if (best_worst == peak) return false;
  layout_.Move(best.mine.table, best.mine.shard, best.to);
  layout_.Move(best.theirs.table, best.theirs.shard, host);
  return true;
}

}  // namespace embla::planner
