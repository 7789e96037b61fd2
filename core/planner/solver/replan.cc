#include "core/planner/solver/replan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/solver/improve.h"
#include "core/planner/solver/layout.h"
#include "core/planner/solver/moves.h"
#include "core/planner/solver/options.h"
#include "core/planner/solver/pack.h"
#include "core/planner/solver/portfolio.h"
#include "core/planner/solver/replicas.h"
#include "core/planner/solver/shed.h"
#include "core/planner/solver/shortage.h"

namespace embla::planner {
namespace {

constexpr std::uint32_t kNone = Layout::kUnplaced;

// The old plan as the new problem sees it.
class Carried {
 public:
  Carried(const Problem& problem, const Planned& previous)
      : problem_(problem),
        previous_(previous),
        before_(PlacesOf(previous.problem)),
        after_(PlacesOf(problem)) {
    std::map<std::string, std::uint32_t> tables, devices, hosts;
    for (std::uint32_t t = 0; t < previous.problem.tables.size(); ++t) {
      tables.emplace(previous.problem.tables[t].name, t);
    }
    for (std::uint32_t d = 0; d < after_.names.size(); ++d) devices.emplace(after_.names[d], d);
    for (std::uint32_t h = 0; h < problem.topology.hosts.size(); ++h) {
      hosts.emplace(problem.topology.hosts[h].name, h);
    }
    const auto find = [](const auto& map, const std::string& name) {
      const auto it = map.find(name);
      return it == map.end() ? kNone : it->second;
    };
    for (const Table& table : problem.tables) {
      const std::uint32_t old = find(tables, table.name);
      const bool same = old != kNone && previous.problem.tables[old].rows == table.rows &&
                        previous.problem.tables[old].dim == table.dim;
      old_table_.push_back(same ? old : kNone);
    }
    for (const std::string& name : before_.names) new_device_.push_back(find(devices, name));
    for (const Host& host : previous.problem.topology.hosts) {
      new_host_.push_back(find(hosts, host.name));
    }
  }

  bool has(std::uint32_t table) const { return old_table_[table] != kNone; }
  const Choice& old_choice(std::uint32_t table) const {
    return previous_.solution.choices[old_table_[table]];
  }
  const Table& old_table(std::uint32_t table) const {
    return previous_.problem.tables[old_table_[table]];
  }
  const Places& before() const { return before_; }
  const Places& after() const { return after_; }

  // The shards' present places, in the new problem's numbers; kNone for places that no longer
  // exist.
  Layout::Targets Home(std::uint32_t table) const {
    Layout::Targets home;
    if (!has(table)) return home;
    const Choice& choice = old_choice(table);
    for (const std::uint32_t target : choice.targets) {
      home.push_back(choice.placement == Placement::kHosts ? new_host_[target]
                                                           : new_device_[target]);
    }
    return home;
  }

  // The cut to go on with: the old one, spread over as many devices as there are now.
  std::optional<Cut> Kept(std::uint32_t table) const {
    if (!has(table)) return std::nullopt;
    Cut cut = old_choice(table).cut;
    if (old_choice(table).placement == Placement::kEverywhere) {
      const auto allowed = AllowedDevices(problem_, problem_.tables[table].rules);
      if (!allowed.ok()) return std::nullopt;
      cut.row_blocks = static_cast<std::uint32_t>(allowed->size());
    }
    return cut;
  }

 private:
  const Problem& problem_;
  const Planned& previous_;
  const Places before_, after_;
  std::vector<std::uint32_t> old_table_;   // By new table.
  std::vector<std::uint32_t> new_device_;  // By old device.
  std::vector<std::uint32_t> new_host_;    // By old host.
};

class Replanner {
 public:
  Replanner(const Problem& problem, const Machine& machine, const OptionSet& options,
            const Carried& carried, Ticks target)
      : problem_(problem),
        machine_(machine),
        options_(options),
        carried_(carried),
        layout_(options, machine),
        packer_(layout_, PackRule::kMaxNorm, target) {}

  // Puts everything back where it was, as far as it may be there; false: something has no place.
  bool Restore() {
    std::vector<std::pair<std::int64_t, std::uint32_t>> homeless;  // Negated size, table.
    for (std::uint32_t t = 0; t < options_.tables(); ++t) {
      home_.push_back(carried_.Home(t));
      const std::uint32_t option = KeptOption(t);
      if (option == kNone) {
        home_.back().clear();
        homeless.emplace_back(-options_.of(t).front().total_work(), t);
      } else if (!TryHome(t, option)) {
        homeless.emplace_back(-options_.of(t)[option].total_work(), t);
      }
    }
    std::sort(homeless.begin(), homeless.end());
    for (const auto& [size, t] : homeless) {
      if (!TryMendHome(t) && !PlaceAnywhere(t)) return false;
    }
    return true;
  }

  void Reduce(Ticks target, std::int64_t budget, Replanned* out) {
    std::vector<std::int64_t> bytes;
    for (std::uint32_t t = 0; t < options_.tables(); ++t) {
      bytes.push_back(
          StoredBytes(problem_.tables[t]) /
          std::max<std::int64_t>(1, static_cast<std::int64_t>(layout_.targets(t).size())));
    }
    Shedder shedder(layout_, std::move(bytes), home_);
    out->load_before = layout_.FindPeak().load;
    const Layout start = layout_;
    shedder.Run(target, budget);
    // Other cuts may reach a load that moves of single shards cannot; then shards move again.
    for (int round = 0; round < 3 && layout_.FindPeak().load > target; ++round) {
      const Ticks peak = layout_.FindPeak().load;
      Improver improver(layout_, PackRule::kMaxNorm);
      improver.Run(std::max(target, peak - (peak - target) / 2), budget / 4);
      operations_ += improver.operations();
      if (layout_.FindPeak().load >= peak) break;
      shedder.Run(target, budget);
    }
    operations_ += shedder.operations();
    out->shed_bound_bytes = ShedBound(start, std::max(target, layout_.FindPeak().load));
  }

  const Layout& layout() const { return layout_; }
  std::int64_t operations() const { return operations_ + packer_.operations(); }

 private:
  std::uint32_t KeptOption(std::uint32_t table) const {
    const std::optional<Cut> cut = carried_.Kept(table);
    if (!cut) return kNone;
    const auto options = options_.of(table);
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      if (options[o].cut == *cut) return o;
    }
    return kNone;
  }

  bool Fits(std::uint32_t table) const {
    const Option& option = layout_.option(table);
    const DeviceSet& set = options_.devices_of(table);
    const auto full = [&](std::uint32_t d) {
      const std::uint32_t h = machine_.host_of[d];
      return set.has[d] == 0 || layout_.bytes(d) > machine_.capacity[d] ||
             layout_.host_bytes(h, 1) > machine_.host_capacity[h][1] ||
             layout_.host_bytes(h, 2) > machine_.host_capacity[h][2];
    };
    if (option.shape == Shape::kEverywhere) {
      return std::none_of(set.devices.begin(), set.devices.end(), full);
    }
    const bool rows = PlacementOf(option.shape) == Placement::kHosts;
    for (const std::uint32_t target : layout_.targets(table)) {
      if (!rows && full(target)) return false;
      for (std::uint32_t d = machine_.host_begin[rows ? target : 0];
           rows && d < machine_.host_begin[target + 1]; ++d) {
        if (machine_.devices_of(target) != option.cut.row_blocks || full(d)) return false;
      }
    }
    return true;
  }

  // The new rules on distance hold for these targets.
  bool KeepsDistance(std::uint32_t table, const Layout::Targets& targets) const {
    const Spread spread = options_.spread_of[table];
    if (spread == Spread::kAny) return true;
    const bool rows = PlacementOf(layout_.option(table).shape) == Placement::kHosts;
    std::vector<std::uint32_t> seen;
    for (const std::uint32_t target : targets) {
      seen.push_back(rows || spread == Spread::kDevices ? target : machine_.host_of[target]);
    }
    std::sort(seen.begin(), seen.end());
    return std::adjacent_find(seen.begin(), seen.end()) == seen.end();
  }

  bool TryHome(std::uint32_t table, std::uint32_t option) {
    const Layout::Targets& home = home_[table];
    if (std::find(home.begin(), home.end(), kNone) != home.end()) return false;
    layout_.Place(table, option, home);
    if (Fits(table) && KeepsDistance(table, home)) return true;
    layout_.Remove(table);
    return false;
  }

  // Keeps the shards that have a place and finds one for each of the others.
  bool TryMendHome(std::uint32_t table) {
    const std::uint32_t number = KeptOption(table);
    if (number == kNone || options_.of(table)[number].shape != Shape::kDevices ||
        options_.spread_of[table] != Spread::kAny) {
      return false;
    }
    Layout::Targets targets = home_[table];
    const DeviceSet& set = options_.devices_of(table);
    const Option& option = options_.of(table)[number];
    for (std::uint32_t& target : targets) {
      if (target != kNone && (set.has[target] == 0 || !layout_.FitsDevice(target, option))) {
        target = kNone;
      }
      if (target != kNone) continue;
      Ticks least = kTicksMax;
      for (const std::uint32_t d : set.devices) {
        const Ticks load = layout_.LoadWith(d, option);
        if (load < least && layout_.FitsDevice(d, option) &&
            std::find(targets.begin(), targets.end(), d) == targets.end()) {
          least = load;
          target = d;
        }
      }
      if (target == kNone) return false;
    }
    layout_.Place(table, number, targets);
    if (Fits(table)) return true;
    layout_.Remove(table);
    return false;
  }

  bool PlaceAnywhere(std::uint32_t table) {
    std::vector<std::pair<Ticks, std::uint32_t>> order;
    const std::uint32_t kept = KeptOption(table);
    for (std::uint32_t o = 0; o < options_.of(table).size(); ++o) {
      order.emplace_back(o == kept ? -1 : options_.of(table)[o].total_work(), o);
    }
    std::sort(order.begin(), order.end());
    return std::any_of(order.begin(), order.end(),
                       [&](const auto& entry) { return packer_.TryPlace(table, entry.second); });
  }

  std::int64_t ShedBound(Layout start, Ticks target) const {
    std::vector<std::int64_t> bytes;
    for (std::uint32_t t = 0; t < options_.tables(); ++t) {
      bytes.push_back(
          StoredBytes(problem_.tables[t]) /
          std::max<std::int64_t>(1, static_cast<std::int64_t>(start.targets(t).size())));
    }
    return Shedder(start, std::move(bytes), home_).ShedBound(target);
  }

  const Problem& problem_;
  const Machine& machine_;
  const OptionSet& options_;
  const Carried& carried_;
  Layout layout_;
  Packer packer_;
  std::vector<Layout::Targets> home_;  // By table; empty where nothing is kept.
  std::int64_t operations_ = 0;
};

void ListMoves(const Carried& carried, Replanned* out) {
  const Problem& problem = out->planned.problem;
  for (std::uint32_t t = 0; t < problem.tables.size(); ++t) {
    if (!carried.has(t)) continue;
    out->total_bytes += StoredBytes(problem.tables[t]);
    AppendMoves(carried.before(), carried.old_table(t), carried.old_choice(t), carried.after(), t,
                out->planned.solution.choices[t], &out->moves);
  }
  for (const Move& move : out->moves) {
    out->moved_bytes += move.bytes;
    if (move.forced) out->forced_bytes += move.bytes;
  }
}

}  // namespace

absl::StatusOr<Replanned> Replan(Problem problem, const Planned& previous,
                                 const ReplanOptions& settings) {
  EMBLA_RETURN_IF_ERROR(Validate(problem));
  problem = Canonical(std::move(problem));
  Replanned out;
  out.planned.replicas = problem.replicas == 0 ? previous.replicas : problem.replicas;
  problem.replicas = out.planned.replicas;
  EMBLA_ASSIGN_OR_RETURN(out.planned.problem, GroupShare(problem, out.planned.replicas));
  const Problem& share = out.planned.problem;
  const Machine machine = MachineOf(share);
  const std::unique_ptr<CostModel> cost = MakeCostModel(share);
  const Carried carried(share, previous);
  std::vector<std::optional<Cut>> kept;
  for (std::uint32_t t = 0; t < share.tables.size(); ++t) kept.push_back(carried.Kept(t));
  EMBLA_ASSIGN_OR_RETURN(const OptionSet options, MakeOptions(share, machine, *cost, kept));
  const Proof proof = ProveBound(options, machine);
  if (!proof.fits) return NoPlanError(share, machine, options, true);
  const Int128 gap = static_cast<Int128>(proof.bound) * settings.target_gap_ppm / 1'000'000;
  out.target = proof.bound + static_cast<Ticks>(gap);
  Replanner replanner(share, machine, options, carried, out.target);
  if (!replanner.Restore()) {
    // Too full to mend: a fresh plan may fit.
    EMBLA_ASSIGN_OR_RETURN(Planned fresh, Solve(problem, settings.solve));
    out.planned.solution = std::move(fresh.solution);
    out.load_before = out.planned.solution.max_load;
  } else {
    const std::int64_t budget = settings.solve.operations_max != 0
                                    ? settings.solve.operations_max
                                    : 50'000'000 + std::int64_t{2000} * options.tables();
    replanner.Reduce(out.target, budget, &out);
    out.planned.solution = replanner.layout().ToSolution();
    out.planned.solution.lower_bound = proof.bound;
    out.planned.solution.certificate = proof.certificate;
    out.planned.solution.operations = proof.operations + replanner.operations();
  }
  ListMoves(carried, &out);
  return out;
}

}  // namespace embla::planner
