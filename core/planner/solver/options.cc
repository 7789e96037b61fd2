#include "core/planner/solver/options.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/base/byte_text.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::planner {
namespace {

constexpr Kernel kUsualKernels[] = {Kernel::kDevice, Kernel::kHostCached, Kernel::kHost};

DeviceSet MakeSet(const Machine& machine, std::vector<std::uint32_t> devices) {
  DeviceSet set;
  set.devices = std::move(devices);
  set.has.assign(machine.devices(), 0);
  std::vector<std::uint32_t> count(machine.hosts(), 0);
  set.slowdown_min = machine.slowdown[set.devices.front()];
  for (const std::uint32_t d : set.devices) {
    set.has[d] = 1;
    ++count[machine.host_of[d]];
    set.slowdown_min = std::min(set.slowdown_min, machine.slowdown[d]);
    set.capacity_max = std::max(set.capacity_max, machine.capacity[d]);
  }
  for (std::uint32_t h = 0; h < machine.hosts(); ++h) {
    if (count[h] > 0) set.hosts.push_back(h);
    if (count[h] == machine.devices_of(h)) set.full_hosts.push_back(h);
  }
  return set;
}

// Whether a placement of `b` has room for one of `a`, shard by shard.
// `even`: every host of the set has all its devices there, and they have equally many.
bool CanStandIn(const Option& a, const Option& b, bool one_host, bool even) {
  if (a.shards > b.shards) return false;
  const auto rank = [one_host](const Option& o) {
    // On one host "any device of one host" is any device.
    return one_host && o.shape == Shape::kOneHost ? Shape::kDevices : o.shape;
  };
  if (a.shards == 1 && a.shape <= Shape::kOneHost) return true;
  if (rank(a) > rank(b)) return false;
  if (rank(a) == Shape::kDevices) return true;
  // The slots of `b` on one host must be enough for `a`.
  if (a.shape == Shape::kOneHost) {
    return b.shape == Shape::kOneHost ||
           (b.shape != Shape::kEverywhere && a.shards <= b.cut.row_blocks);
  }
  // Column blocks of `a` may need as many hosts as there are.
  return b.shape == Shape::kEverywhere ? even : a.cut.row_blocks == b.cut.row_blocks;
}

bool Beats(const Option& a, const Option& b, bool one_host, bool even) {
  if (a.work > b.work || a.total_work() > b.total_work()) return false;
  if (a.host_work > b.host_work || a.total_host_work() > b.total_host_work()) return false;
  for (std::size_t r = 0; r < kTiers; ++r) {
    if (a.bytes[r] > b.bytes[r] || a.total[r] > b.total[r]) return false;
  }
  return CanStandIn(a, b, one_host, even);
}

class Enumerator {
 public:
  Enumerator(const Problem& problem, const Machine& machine, const CostModel& cost,
             std::span<const std::optional<Cut>> kept)
      : problem_(problem), machine_(machine), cost_(cost), kept_cuts_(kept) {}

  absl::Status Run(OptionSet* out) {
    std::vector<std::uint32_t> every(machine_.devices());
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) every[d] = d;
    out->sets.push_back(MakeSet(machine_, every));
    out->begin.push_back(0);
    out->all.reserve(problem_.tables.size() * 5);
    for (const Table& table : problem_.tables) {
      EMBLA_RETURN_IF_ERROR(Annotate(AddTable(table, out), absl::StrCat("table ", table.name)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddTable(const Table& table, OptionSet* out) {
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t set, SetOf(table.rules, out));
    out->set_of.push_back(set);
    out->spread_of.push_back(table.rules.spread);
    found_.clear();
    smallest_ = INT64_MAX;
    cuts_ = 0;
    const auto& types = table.rules.types;
    // In the order of the enum, whatever order the rule has.
    for (const ShardingType type : kShardingTypes) {
      const bool allowed = types.empty()
                               ? !TraitsOf(type).must_be_named
                               : std::find(types.begin(), types.end(), type) != types.end();
      if (allowed) AddType(table, type, out->sets[set]);
    }
    if (found_.empty()) return NoOption(table, out->sets[set]);
    Prune(out->sets[set], kept_cuts_.empty() ? std::nullopt : kept_cuts_[out->set_of.size() - 1]);
    out->all.insert(out->all.end(), found_.begin(), found_.end());
    out->begin.push_back(static_cast<std::uint32_t>(out->all.size()));
    return absl::OkStatus();
  }

  absl::StatusOr<std::uint32_t> SetOf(const TableRules& rules, OptionSet* out) {
    if (rules.hosts.empty() && rules.devices.empty() && rules.groups.empty() && rules.pin.empty()) {
      return 0;
    }
    const auto key = std::tie(rules.hosts, rules.devices, rules.groups, rules.pin);
    if (const auto it = set_by_rules_.find(key); it != set_by_rules_.end()) return it->second;
    EMBLA_ASSIGN_OR_RETURN(std::vector<std::uint32_t> devices, AllowedDevices(problem_, rules));
    std::uint32_t set = 0;
    while (set < out->sets.size() && out->sets[set].devices != devices) ++set;
    if (set == out->sets.size()) out->sets.push_back(MakeSet(machine_, std::move(devices)));
    set_by_rules_.emplace(key, set);
    return set;
  }

  void AddType(const Table& table, ShardingType type, const DeviceSet& set) {
    const ShardingTraits traits = TraitsOf(type);
    if (traits.is_everywhere) {
      const std::uint32_t devices = static_cast<std::uint32_t>(set.devices.size());
      Add(table, {type, Kernel::kDevice, table.dim, 1, devices}, Shape::kEverywhere, set);
      return;
    }
    Widths(table, traits);
    if (!traits.shares_hosts) {
      const Shape shape =
          type == ShardingType::kTableColumnWise ? Shape::kOneHost : Shape::kDevices;
      for (const std::uint32_t width : widths_) {
        Add(table, {type, Kernel::kDevice, width, table.dim / width, 1}, shape, set);
      }
      return;
    }
    std::uint32_t before = 0;
    std::vector<std::uint32_t> counts;
    for (const std::uint32_t host : set.full_hosts) counts.push_back(machine_.devices_of(host));
    std::sort(counts.begin(), counts.end());
    for (const std::uint32_t count : counts) {
      if (count == before) continue;
      before = count;
      for (const std::uint32_t width : widths_) {
        const Shape shape = traits.cuts_columns ? Shape::kGrid : Shape::kHostRows;
        Add(table, {type, Kernel::kDevice, width, table.dim / width, count}, shape, set);
      }
    }
  }

  // Widths of the column blocks of a type, widest first.
  void Widths(const Table& table, const ShardingTraits& type) {
    widths_.clear();
    if (!type.cuts_columns) {
      widths_.push_back(table.dim);
      return;
    }
    const std::uint32_t rule = table.rules.min_partition;
    const std::uint32_t least = rule == 0 ? problem_.min_partition : rule;
    const std::uint32_t narrowest = ColumnWidth(table.dim, least);
    if (problem_.all_widths) {
      for (std::uint32_t width = table.dim; width > narrowest && width % 4 == 0; width /= 2) {
        widths_.push_back(width);
        if (width % 2 != 0) break;
      }
    }
    widths_.push_back(narrowest);
  }

  void Add(const Table& table, Cut cut, Shape shape, const DeviceSet& set) {
    const auto& kernels = table.rules.kernels;
    const bool replicated = TraitsOf(cut.type).has_copies;
    for (int i = 0; i < kKernels; ++i) {
      cut.kernel = static_cast<Kernel>(i);
      if (replicated && cut.kernel != Kernel::kDevice) continue;
      const bool usual = std::find(std::begin(kUsualKernels), std::end(kUsualKernels),
                                   cut.kernel) != std::end(kUsualKernels);
      const bool named = std::find(kernels.begin(), kernels.end(), cut.kernel) != kernels.end();
      if (kernels.empty() ? !usual : !named) continue;
      if (!CanSpread(table.rules.spread, cut, shape, set)) continue;
      AddPriced(table, cut, shape, set);
    }
  }

  // Whether the shards of one table may keep the distance its rules ask for.
  static bool CanSpread(Spread spread, const Cut& cut, Shape shape, const DeviceSet& set) {
    if (spread == Spread::kAny) return true;
    if (spread == Spread::kDevices) {
      if (shape == Shape::kGrid) return cut.column_blocks <= set.full_hosts.size();
      return cut.shards() <= set.devices.size();
    }
    if (shape == Shape::kDevices) return cut.shards() <= set.hosts.size();
    if (shape == Shape::kGrid && cut.row_blocks == 1) {
      return cut.column_blocks <= set.full_hosts.size();
    }
    return cut.shards() == 1 ||
           (shape == Shape::kEverywhere && set.hosts.size() == set.devices.size());
  }

  void AddPriced(const Table& table, const Cut& cut, Shape shape, const DeviceSet& set) {
    ++cuts_;
    const Price price = cost_.PriceOf(table, cut);
    smallest_ = std::min(smallest_, price.bytes[0]);
    if (price.bytes[0] > set.capacity_max) return;
    found_.push_back(
        {price.work, price.host_work, price.bytes, price.bytes_total, cut.shards(), shape, cut});
  }

  void Prune(const DeviceSet& set, const std::optional<Cut>& keep) {
    const bool one_host = set.hosts.size() == 1;
    const bool even = set.full_hosts.size() == set.hosts.size() &&
                      std::all_of(set.hosts.begin(), set.hosts.end(), [&](std::uint32_t host) {
                        return machine_.devices_of(host) == machine_.devices_of(set.hosts.front());
                      });
    kept_.clear();
    for (std::size_t b = 0; b < found_.size(); ++b) {
      bool beaten = false;
      if (keep && found_[b].cut == *keep) {
        kept_.push_back(found_[b]);
        continue;
      }
      for (std::size_t a = 0; a < found_.size() && !beaten; ++a) {
        if (a == b || !Beats(found_[a], found_[b], one_host, even)) continue;
        // Keep the first of two options that beat each other.
        beaten = a < b || !Beats(found_[b], found_[a], one_host, even);
      }
      if (!beaten) kept_.push_back(found_[b]);
    }
    found_.swap(kept_);
  }

  absl::Status NoOption(const Table& table, const DeviceSet& set) const {
    if (cuts_ == 0) {
      return absl::InvalidArgumentError(
          "rules types, kernels and spread leave no way to cut it on the allowed devices");
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "its smallest shard needs ", FormatBytes(smallest_), " of device memory, the largest ",
        "allowed device has ", FormatBytes(set.capacity_max), " (",
        FormatBytes(smallest_ - set.capacity_max), " short)"));
  }

  const Problem& problem_;
  const Machine& machine_;
  const CostModel& cost_;
  const std::span<const std::optional<Cut>> kept_cuts_;
  using RulesKey = std::tuple<std::vector<std::string>, std::vector<std::string>,
                              std::vector<std::string>, std::string>;
  std::map<RulesKey, std::uint32_t> set_by_rules_;
  std::vector<std::uint32_t> widths_;
  std::vector<Option> found_, kept_;  // Options of the current table.
  std::int64_t smallest_ = 0;
  int cuts_ = 0;
};

}  // namespace

absl::StatusOr<OptionSet> MakeOptions(const Problem& problem, const Machine& machine,
                                      const CostModel& cost,
                                      std::span<const std::optional<Cut>> kept) {
  OptionSet options;
  EMBLA_RETURN_IF_ERROR(Enumerator(problem, machine, cost, kept).Run(&options));
  return options;
}

Placement PlacementOf(Shape shape) {
  if (shape == Shape::kEverywhere) return Placement::kEverywhere;
  return shape == Shape::kHostRows || shape == Shape::kGrid ? Placement::kHosts
                                                            : Placement::kShards;
}

}  // namespace embla::planner
