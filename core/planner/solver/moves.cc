#include "core/planner/solver/moves.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/check.h"

namespace embla::planner {
namespace {

double StateBytesPerRow(const Table& table) {
  return 4.0 * static_cast<double>(TraitsOf(table.optimizer).state.Floats(table.dim));
}

std::int64_t GranulesOf(const Table& table) {
  return std::min<std::int64_t>(table.rows, kRowGranulesDefault);
}

// How many of `all` the i-th of n gets when they are dealt evenly.
std::int64_t Part(std::int64_t all, std::size_t i, std::size_t n) {
  const std::int64_t count = static_cast<std::int64_t>(n);
  const std::int64_t at = static_cast<std::int64_t>(i);
  return all * (at + 1) / count - all * at / count;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Row granules of a row-wise table: devices that have more than their new even part give, those
// with less take. Nothing else moves: 1 / (n + 1) of the rows when one device joins n.
class GranuleMoves {
 public:
  GranuleMoves(std::uint32_t table, std::int64_t granules, double bytes_per_granule)
      : table_(table), granules_(granules), bytes_per_granule_(bytes_per_granule) {}

  void Append(const std::vector<std::string>& old_names, const std::vector<std::string>& new_names,
              const std::vector<std::string>& all_new_names, std::vector<Move>* moves) const {
    std::map<std::string, std::int64_t> surplus;
    for (std::size_t i = 0; i < old_names.size(); ++i) {
      surplus[old_names[i]] += Part(granules_, i, old_names.size());
    }
    // The larger parts go to those that have more already.
    std::vector<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t i = 0; i < new_names.size(); ++i) {
      order.emplace_back(-surplus[new_names[i]], i);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::pair<std::size_t, std::int64_t>> wanting;
    const std::size_t n = new_names.size();
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t base = granules_ / static_cast<std::int64_t>(n);
      const bool larger = static_cast<std::int64_t>(k) < granules_ % static_cast<std::int64_t>(n);
      const std::size_t i = order[k].second;
      std::int64_t& more = surplus[new_names[i]];
      more -= base + (larger ? 1 : 0);
      if (more < 0) wanting.emplace_back(i, -more);
    }
    auto taker = wanting.begin();
    for (const auto& [name, more] : surplus) {
      std::int64_t left = more;
      while (left > 0 && taker != wanting.end()) {
        const std::int64_t count = std::min(left, taker->second);
        moves->push_back(
            {table_, static_cast<std::uint32_t>(taker->first), name, new_names[taker->first],
             static_cast<std::uint32_t>(count),
             static_cast<std::int64_t>(static_cast<double>(count) * bytes_per_granule_),
             !Contains(all_new_names, name)});
        left -= count;
        taker->second -= count;
        if (taker->second == 0) ++taker;
      }
    }
  }

 private:
  std::uint32_t table_;
  std::int64_t granules_;
  double bytes_per_granule_;
};

std::vector<std::string> NamesOf(const Places& places, const std::vector<std::uint32_t>& devices) {
  std::vector<std::string> names;
  names.reserve(devices.size());
  for (const std::uint32_t d : devices) names.push_back(places.names[d]);
  return names;
}

}  // namespace

Places PlacesOf(const Problem& problem) {
  Places places{&problem, MachineOf(problem), {}};
  for (std::uint32_t d = 0; d < places.machine.devices(); ++d) {
    places.names.push_back(DeviceName(problem, places.machine, d));
  }
  return places;
}

std::int64_t StoredBytes(const Table& table) {
  const double row = static_cast<double>(table.dim) * table.element_bytes +
                     StateBytesPerRow(table) + table.slot_bytes;
  return static_cast<std::int64_t>(row * static_cast<double>(table.rows));
}

std::vector<std::uint32_t> ShardDevices(const Places& places, const Table& table,
                                        const Choice& choice) {
  std::vector<std::uint32_t> devices;
  if (choice.placement == Placement::kEverywhere) {
    absl::StatusOr<std::vector<std::uint32_t>> allowed =
        AllowedDevices(*places.problem, table.rules);
    EMBLA_CHECK(allowed.ok());
    return *std::move(allowed);
  }
  for (const std::uint32_t target : choice.targets) {
    if (choice.placement == Placement::kShards) {
      devices.push_back(target);
      continue;
    }
    const Machine& machine = places.machine;
    for (std::uint32_t d = machine.host_begin[target]; d < machine.host_begin[target + 1]; ++d) {
      devices.push_back(d);
    }
  }
  return devices;
}

void AppendMoves(const Places& before, const Table& old_table, const Choice& old_choice,
                 const Places& after, std::uint32_t table, const Choice& new_choice,
                 std::vector<Move>* moves) {
  const Table& now = after.problem->tables[table];
  const auto old_names = NamesOf(before, ShardDevices(before, old_table, old_choice));
  const auto new_names = NamesOf(after, ShardDevices(after, now, new_choice));
  const double bytes = static_cast<double>(StoredBytes(now));
  const std::int64_t granules = GranulesOf(now);
  const Cut& a = old_choice.cut;
  const Cut& b = new_choice.cut;
  if (a.type == ShardingType::kRowWise && b.type == ShardingType::kRowWise) {
    GranuleMoves(table, granules, bytes / static_cast<double>(granules))
        .Append(old_names, new_names, after.names, moves);
    return;
  }
  const bool replicated = TraitsOf(b.type).has_copies;
  const bool same = replicated ? a.type == b.type
                               : a.width == b.width && a.row_blocks == b.row_blocks &&
                                     !TraitsOf(a.type).has_copies;
  const std::int64_t per_shard =
      static_cast<std::int64_t>(replicated ? bytes : bytes / static_cast<double>(b.shards()));
  for (std::uint32_t i = 0; i < new_names.size(); ++i) {
    const bool held = replicated || TraitsOf(a.type).has_copies
                          ? Contains(old_names, new_names[i])
                          : same && old_names[i] == new_names[i];
    if (held) continue;
    const std::string from = same && !replicated ? old_names[i] : "";
    const std::int64_t rows =
        replicated ? granules : Part(granules, i % b.row_blocks, b.row_blocks);
    moves->push_back({table, i, from, new_names[i], static_cast<std::uint32_t>(rows), per_shard,
                      !from.empty() && !Contains(after.names, from)});
  }
}

}  // namespace embla::planner
