#include "core/planner/checker/checker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/checker/cuts.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"

namespace embla::planner {
namespace {

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

std::string Ms(Ticks ticks) { return absl::StrCat(MsFromTicks(ticks), " ms (", ticks, " ticks)"); }

// Numbers that a certificate may hold; anything a solver needs is far inside.
constexpr std::int64_t kWeightMax = std::int64_t{1} << 40;
constexpr std::int64_t kHostWeightMax = std::int64_t{1} << 56;
constexpr std::int64_t kBytePriceMax = std::int64_t{1} << 44;

// Sums and products of values >= 0 that stop at kHuge instead of wrapping. A sum of minima that
// stopped is still a lower bound of the true one; on the other side of the comparison kHuge is
// refused.
constexpr Int128 kHuge = Int128{1} << 122;

int Bits(Int128 value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(value));
}
Int128 Times(Int128 a, Int128 b) { return Bits(a) + Bits(b) > 122 ? kHuge : a * b; }
Int128 Plus(Int128 a, Int128 b) { return std::min(kHuge, a + b); }

// The proof of solution.h, one table at a time.
class BoundCheck {
 public:
  BoundCheck(const Machine& machine, const Certificate& certificate)
      : machine_(machine), certificate_(certificate), in_scope_(machine.hosts(), 0) {}

  absl::Status Begin() {
    const Certificate& c = certificate_;
    if (c.bound < 0 || c.bound > kTicksMax) return Refuse("certificate: bound is out of range");
    if (c.weight.size() != machine_.devices()) {
      return Refuse("certificate: ", c.weight.size(), " weights for ", machine_.devices(),
                    " devices");
    }
    if (c.host_weight < 0 || c.host_weight > kHostWeightMax) {
      return Refuse("certificate: host weight is out of range");
    }
    Int128 weights = 0;
    Int128 memory = 0;
    for (std::size_t r = 0; r < kTiers; ++r) {
      if (c.price[r] < 0 || c.price[r] > kBytePriceMax) {
        return Refuse("certificate: price of tier ", ToAbsl(NameOf(static_cast<Tier>(r))),
                      " is out of range");
      }
    }
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      if (c.weight[d] < 0 || c.weight[d] > kWeightMax) {
        return Refuse("certificate: weight of device ", d, " is out of range");
      }
      if (c.weight[d] == 0) continue;
      weights += c.weight[d];
      memory = Plus(memory, PriceOf(0, machine_.capacity[d]));
      in_scope_[machine_.host_of[d]] = 1;
    }
    for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
      if (in_scope_[h] == 0) continue;
      weights += c.host_weight;
      for (std::size_t r = 1; r < kTiers; ++r) {
        memory = Plus(memory, PriceOf(r, machine_.host_capacity[h][r]));
      }
    }
    allowance_ = Plus(Times(weights << kSlowdownShift, std::max<Ticks>(0, c.bound - 1)), memory);
    if (allowance_ >= kHuge) return Refuse("certificate: its numbers are out of range");
    return absl::OkStatus();
  }

  // Adds the least that `table` costs when no device works longer than bound - 1.
  void Add(const CostModel& cost, const Table& table, const std::vector<Cut>& cuts,
           const AllowedPlaces& places) {
    const Scope& scope = ScopeOf(places);
    Int128 least = kHuge;
    bool possible = false;
    for (const Cut& cut : cuts) {
      const Price price = cost.PriceOf(table, cut);
      if (!FitsSomewhere(price, scope)) continue;
      possible = true;
      least = std::min(least, CostOf(price, cut, scope));
    }
    if (!possible) impossible_ = true;
    if (scope.inside) sum_ = Plus(sum_, least);
  }

  absl::Status Finish() const {
    if (certificate_.bound == 0 || impossible_ || sum_ > allowance_) return absl::OkStatus();
    return Refuse("certificate: its weights and prices do not prove the bound of ",
                  Ms(certificate_.bound), ": the tables may cost as little as ",
                  static_cast<double>(sum_) / static_cast<double>(allowance_),
                  " of what a plan below it has to give");
  }

 private:
  // Summary of a set of allowed devices.
  struct Scope {
    bool inside = true;                                        // No allowed device has weight 0.
    Int128 least_weight = kHuge;                               // Least weight x slowdown.
    std::vector<std::pair<std::int64_t, std::int64_t>> kinds;  // Distinct (slowdown, capacity).
  };

  const Scope& ScopeOf(const AllowedPlaces& places) {
    const auto [it, fresh] = scopes_.try_emplace(&places);
    if (!fresh) return it->second;
    Scope& scope = it->second;
    for (const std::uint32_t d : places.devices) {
      scope.inside &= certificate_.weight[d] > 0;
      scope.least_weight =
          std::min(scope.least_weight, Times(certificate_.weight[d], machine_.slowdown[d]));
      scope.kinds.emplace_back(machine_.slowdown[d], machine_.capacity[d]);
    }
    std::sort(scope.kinds.begin(), scope.kinds.end());
    scope.kinds.erase(std::unique(scope.kinds.begin(), scope.kinds.end()), scope.kinds.end());
    return scope;
  }

  bool FitsSomewhere(const Price& price, const Scope& scope) const {
    if (price.host_work >= certificate_.bound) return false;
    return std::any_of(scope.kinds.begin(), scope.kinds.end(), [&](const auto& kind) {
      return Slowed(price.work, kind.first) < certificate_.bound && price.bytes[0] <= kind.second;
    });
  }

  Int128 PriceOf(std::size_t tier, std::int64_t bytes) const {
    return Times(static_cast<Int128>(certificate_.price[tier]) << Certificate::kPriceScale, bytes);
  }

  Int128 CostOf(const Price& price, const Cut& cut, const Scope& scope) const {
    const Int128 shards = cut.shards();
    Int128 sum = Times(scope.least_weight, Times(price.work, shards));
    sum = Plus(sum, Times(static_cast<Int128>(certificate_.host_weight) << kSlowdownShift,
                          Times(price.host_work, shards)));
    for (std::size_t r = 0; r < kTiers; ++r) sum = Plus(sum, PriceOf(r, price.bytes_total[r]));
    return sum;
  }

  const Machine& machine_;
  const Certificate& certificate_;
  std::vector<std::uint8_t> in_scope_;  // By host.
  std::map<const AllowedPlaces*, Scope> scopes_;
  Int128 allowance_ = 0;  // (bound - 1) x weights + price of the memory.
  Int128 sum_ = 0;
  bool impossible_ = false;  // Some table has no cut at all below the bound.
};

// Adds shards up; knows nothing of how they were chosen.
class Ledger {
 public:
  explicit Ledger(const Machine& machine)
      : machine_(machine),
        work_(machine.devices()),
        bytes_(machine.devices()),
        hosts_(machine.hosts()) {}

  // One shard on each of `devices`.
  void Add(const Price& price, const std::vector<std::uint32_t>& devices) {
    for (const std::uint32_t d : devices) {
      HostUse& host = hosts_[machine_.host_of[d]];
      AddTo(&work_[d], price.work);
      AddTo(&bytes_[d], price.bytes[0]);
      AddTo(&host.network_load, price.host_work);
      AddTo(&host.bytes[1], price.bytes[1]);
      AddTo(&host.bytes[2], price.bytes[2]);
    }
  }

  absl::Status Compare(const Problem& problem, const Solution& solution, Ticks* max_load) const {
    if (solution.devices.size() != work_.size() || solution.hosts.size() != hosts_.size()) {
      return Refuse("the plan lists ", solution.devices.size(), " devices and ",
                    solution.hosts.size(), " hosts, there are ", work_.size(), " and ",
                    hosts_.size());
    }
    *max_load = 0;
    for (std::uint32_t d = 0; d < work_.size(); ++d) {
      EMBLA_RETURN_IF_ERROR(Annotate(CompareDevice(d, solution.devices[d], max_load),
                                     "device " + DeviceName(problem, machine_, d)));
    }
    for (std::uint32_t h = 0; h < hosts_.size(); ++h) {
      EMBLA_RETURN_IF_ERROR(Annotate(CompareHost(h, solution.hosts[h], max_load),
                                     "host " + problem.topology.hosts[h].name));
    }
    if (*max_load == solution.max_load) return absl::OkStatus();
    return Refuse("the plan states a max load of ", Ms(solution.max_load), ", its shards make ",
                  Ms(*max_load));
  }

 private:
  // Stops at kTicksMax, which no device has time or room for.
  static void AddTo(std::int64_t* sum, std::int64_t value) {
    *sum = std::min(kTicksMax, *sum + std::min(kTicksMax, value));
  }

  absl::Status CompareDevice(std::uint32_t d, const DeviceUse& stated, Ticks* max_load) const {
    const Ticks load = Slowed(work_[d], machine_.slowdown[d]);
    *max_load = std::max(*max_load, load);
    if (load != stated.load) {
      return Refuse("states a load of ", Ms(stated.load), ", its shards make ", Ms(load));
    }
    if (bytes_[d] != stated.bytes) {
      return Refuse("states ", stated.bytes, " bytes, its shards take ", bytes_[d]);
    }
    return CheckRoom(Tier::kDevice, bytes_[d], machine_.capacity[d]);
  }

  absl::Status CompareHost(std::uint32_t h, const HostUse& stated, Ticks* max_load) const {
    *max_load = std::max(*max_load, hosts_[h].network_load);
    if (hosts_[h].network_load != stated.network_load) {
      return Refuse("states a network load of ", Ms(stated.network_load), ", its shards make ",
                    Ms(hosts_[h].network_load));
    }
    for (const Tier tier : {Tier::kHost, Tier::kSsd}) {
      const auto r = static_cast<std::size_t>(tier);
      if (hosts_[h].bytes[r] != stated.bytes[r]) {
        return Refuse("states ", stated.bytes[r], " bytes of ", ToAbsl(NameOf(tier)),
                      " memory, its shards take ", hosts_[h].bytes[r]);
      }
      EMBLA_RETURN_IF_ERROR(CheckRoom(tier, hosts_[h].bytes[r], machine_.host_capacity[h][r]));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckRoom(Tier tier, std::int64_t used, std::int64_t capacity) {
    if (used <= capacity) return absl::OkStatus();
    return Refuse(ToAbsl(NameOf(tier)), " memory is overfull: ", used, " of ", capacity, " bytes, ",
                  used - capacity, " too many");
  }

  const Machine& machine_;
  std::vector<Ticks> work_;
  std::vector<std::int64_t> bytes_;
  std::vector<HostUse> hosts_;
};

Placement PlacementOf(ShardingType type) {
  switch (type) {
    case ShardingType::kRowWise:
    case ShardingType::kDataParallel:
      return Placement::kEverywhere;
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard:
      return Placement::kHosts;
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      break;
  }
  return Placement::kShards;
}

absl::Status CheckCut(const Choice& choice, const Table& table, const std::vector<Cut>& allowed) {
  const Cut& cut = choice.cut;
  if (static_cast<std::uint64_t>(cut.width) * cut.column_blocks != table.dim) {
    return Refuse(cut.column_blocks, " blocks of ", cut.width, " columns do not cover dim ",
                  table.dim, " exactly once");
  }
  if (std::find(allowed.begin(), allowed.end(), cut) == allowed.end()) {
    return Refuse("its rules do not allow ", ToAbsl(NameOf(cut.type)), " with kernel ",
                  ToAbsl(NameOf(cut.kernel)), ", width ", cut.width, " and ", cut.row_blocks,
                  " row blocks");
  }
  if (choice.placement != PlacementOf(cut.type)) {
    return Refuse("its placement is not that of ", ToAbsl(NameOf(cut.type)));
  }
  const std::size_t wanted = choice.placement == Placement::kEverywhere ? 0 : cut.column_blocks;
  if (choice.targets.size() == wanted) return absl::OkStatus();
  return Refuse("has ", choice.targets.size(), " targets for ", wanted, " column blocks");
}

// The device of every shard; FailedPrecondition when rules forbid one.
absl::StatusOr<std::vector<std::uint32_t>> DevicesOf(const Choice& choice, const Machine& machine,
                                                     const AllowedPlaces& places) {
  if (choice.placement == Placement::kEverywhere) return places.devices;
  std::vector<std::uint32_t> devices;
  for (const std::uint32_t target : choice.targets) {
    if (choice.placement == Placement::kShards) {
      devices.push_back(target);
      continue;
    }
    if (target >= machine.hosts()) return Refuse("no host has number ", target);
    if (machine.devices_of(target) != choice.cut.row_blocks) {
      return Refuse(choice.cut.row_blocks, " row blocks do not cover the ",
                    machine.devices_of(target), " devices of host ", target, " exactly once");
    }
    for (std::uint32_t d = machine.host_begin[target]; d < machine.host_begin[target + 1]; ++d) {
      devices.push_back(d);
    }
  }
  for (const std::uint32_t d : devices) {
    if (d >= machine.devices()) return Refuse("no device has number ", d);
    if (places.has[d] == 0) return Refuse("its rules forbid device ", d);
    if (choice.cut.type == ShardingType::kTableColumnWise &&
        machine.host_of[d] != machine.host_of[devices.front()]) {
      return Refuse("its shards lie on several hosts, table_column_wise keeps to one");
    }
  }
  return devices;
}

absl::Status CheckSpread(Spread spread, const std::vector<std::uint32_t>& devices,
                         const Machine& machine) {
  if (spread == Spread::kAny) return absl::OkStatus();
  absl::flat_hash_set<std::uint32_t> seen;
  for (const std::uint32_t d : devices) {
    if (seen.insert(spread == Spread::kDevices ? d : machine.host_of[d]).second) continue;
    return Refuse("two of its shards meet on device ", d, ", rule spread forbids that");
  }
  return absl::OkStatus();
}

// The device of every shard of a choice that the table's rules allow.
absl::StatusOr<std::vector<std::uint32_t>> PlaceShards(const Table& table, const Choice& choice,
                                                       const std::vector<Cut>& cuts,
                                                       const Machine& machine,
                                                       const AllowedPlaces& places) {
  EMBLA_RETURN_IF_ERROR(CheckCut(choice, table, cuts));
  EMBLA_ASSIGN_OR_RETURN(std::vector<std::uint32_t> devices, DevicesOf(choice, machine, places));
  EMBLA_RETURN_IF_ERROR(CheckSpread(table.rules.spread, devices, machine));
  return devices;
}

absl::Status CheckClaims(const Solution& solution) {
  const Ticks certified = solution.certificate.bound;
  const Ticks bound = std::max(certified, solution.search_bound);
  if (solution.lower_bound != bound) {
    return Refuse("the plan states a lower bound of ", Ms(solution.lower_bound),
                  ", its certificate is for ", Ms(certified),
                  solution.search_bound > 0 ? " and its search for " : " and no search for ",
                  Ms(bound));
  }
  if (bound <= solution.max_load) return absl::OkStatus();
  return Refuse("the lower bound of ", Ms(bound), " is above the plan's own max load");
}

}  // namespace

absl::StatusOr<CheckReport> Check(const Problem& canonical, const Solution& solution) {
  EMBLA_RETURN_IF_ERROR(Validate(canonical));
  const std::vector<Table>& tables = canonical.tables;
  if (solution.choices.size() != tables.size()) {
    return Refuse("the plan has choices for ", solution.choices.size(), " tables, there are ",
                  tables.size());
  }
  const Machine machine = MachineOf(canonical);
  const std::unique_ptr<CostModel> cost = MakeCostModel(canonical);
  PlaceBook book(canonical, machine);
  BoundCheck bound(machine, solution.certificate);
  EMBLA_RETURN_IF_ERROR(bound.Begin());
  Ledger ledger(machine);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Table& table = tables[t];
    EMBLA_ASSIGN_OR_RETURN(const AllowedPlaces* places, book.At(table.rules));
    const std::vector<Cut> cuts = AllowedCuts(canonical, machine, table, *places);
    const auto devices = PlaceShards(table, solution.choices[t], cuts, machine, *places);
    if (!devices.ok()) return Annotate(devices.status(), "table " + table.name);
    ledger.Add(cost->PriceOf(table, solution.choices[t].cut), *devices);
    bound.Add(*cost, table, cuts, *places);
  }
  CheckReport report;
  EMBLA_RETURN_IF_ERROR(ledger.Compare(canonical, solution, &report.max_load));
  EMBLA_RETURN_IF_ERROR(bound.Finish());
  EMBLA_RETURN_IF_ERROR(CheckClaims(solution));
  report.proven_bound = solution.certificate.bound;
  report.claimed_search_bound = solution.search_bound;
  report.proven_gap = report.max_load == 0 ? 0
                      : report.proven_bound == 0
                          ? std::numeric_limits<double>::infinity()
                          : MsFromTicks(report.max_load) / MsFromTicks(report.proven_bound) - 1;
  return report;
}

}  // namespace embla::planner
