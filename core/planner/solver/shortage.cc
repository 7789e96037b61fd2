#include "core/planner/solver/shortage.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_text.h"
#include "core/base/text.h"
#include "core/planner/problem/names.h"
#include "core/planner/solver/layout.h"
#include "core/planner/solver/pack.h"

namespace embla::planner {
namespace {

using Weights = std::array<std::int64_t, kTiers>;
constexpr std::int64_t kWeights[] = {0, 1, 2, 4, 8, 16, 32};
constexpr std::size_t kTablesNamed = 3;

// The tables that cannot leave `set`.
std::vector<std::uint32_t> TablesInside(const OptionSet& options, std::uint32_t set) {
  const DeviceSet& outer = options.sets[set];
  std::vector<bool> inside;
  for (const DeviceSet& inner : options.sets) {
    inside.push_back(std::all_of(inner.devices.begin(), inner.devices.end(),
                                 [&](std::uint32_t d) { return outer.has[d] != 0; }));
  }
  std::vector<std::uint32_t> tables;
  for (std::uint32_t t = 0; t < options.tables(); ++t) {
    if (inside[options.set_of[t]]) tables.push_back(t);
  }
  return tables;
}

Int128 Weighed(const TierBytes& bytes, const Weights& weights) {
  Int128 sum = 0;
  for (std::size_t r = 0; r < kTiers; ++r) sum += static_cast<Int128>(weights[r]) * bytes[r];
  return sum;
}

const Option& Lightest(const OptionSet& options, std::uint32_t table, const Weights& weights) {
  const auto of = options.of(table);
  return *std::min_element(of.begin(), of.end(), [&](const Option& a, const Option& b) {
    return Weighed(a.total, weights) < Weighed(b.total, weights);
  });
}

struct Shortage {
  std::uint32_t set = 0;
  Weights weights{};
  Int128 excess = 0;  // Weighed bytes that the tables need beyond what there is.
  TierBytes capacity{};
  double share = 0;  // Fraction of the capacity.
};

TierBytes CapacityOf(const Machine& machine, const DeviceSet& set) {
  TierBytes capacity{};
  for (const std::uint32_t d : set.devices) capacity[0] += machine.capacity[d];
  for (const std::uint32_t h : set.hosts) {
    capacity[1] += machine.host_capacity[h][1];
    capacity[2] += machine.host_capacity[h][2];
  }
  return capacity;
}

// The worst shortage over scopes and weighings. Weighings that name fewer tiers come first.
std::optional<Shortage> FindShortage(const Machine& machine, const OptionSet& options) {
  std::array<bool, kTiers> used{};
  for (const Option& option : options.all) {
    for (std::size_t r = 0; r < kTiers; ++r) used[r] |= option.total[r] > 0;
  }
  std::optional<Shortage> worst;
  for (int tiers = 1; tiers <= static_cast<int>(kTiers) && !worst; ++tiers) {
    for (std::uint32_t set = 0; set < options.sets.size(); ++set) {
      const std::vector<std::uint32_t> tables = TablesInside(options, set);
      const TierBytes capacity = CapacityOf(machine, options.sets[set]);
      for (const std::int64_t a : kWeights) {
        for (const std::int64_t b : kWeights) {
          for (const std::int64_t c : kWeights) {
            const Weights weights{a, b, c};
            if ((a > 0) + (b > 0) + (c > 0) != tiers || (tiers == 1 && a + b + c != 1)) continue;
            if ((a > 0 && !used[0]) || (b > 0 && !used[1]) || (c > 0 && !used[2])) continue;
            Int128 need = 0;
            for (const std::uint32_t t : tables) {
              need += Weighed(Lightest(options, t, weights).total, weights);
            }
            const Int128 have = Weighed(capacity, weights);
            if (need <= have) continue;
            const double share = static_cast<double>(need - have) / (static_cast<double>(have) + 1);
            if (worst && share <= worst->share) continue;
            worst = Shortage{set, weights, need - have, capacity, share};
          }
        }
      }
    }
  }
  return worst;
}

// "name (24.2 GiB)" of the tables that need most of `tier`.
std::string Neediest(const Problem& problem, const OptionSet& options, std::uint32_t set,
                     const Weights& weights, std::size_t tier) {
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;
  for (const std::uint32_t t : TablesInside(options, set)) {
    order.emplace_back(-Lightest(options, t, weights).total[tier], t);
  }
  const std::size_t n = std::min(kTablesNamed, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  order.resize(n);
  return absl::StrJoin(order, ", ", [&](std::string* out, const auto& entry) {
    absl::StrAppend(out, problem.tables[entry.second].name, " (", FormatBytes(-entry.first), ")");
  });
}

std::string Describe(const Problem& problem, const Machine& machine, const OptionSet& options,
                     const Shortage& shortage) {
  std::vector<std::string> parts;
  std::size_t first = kTiers;
  for (std::size_t r = 0; r < kTiers; ++r) {
    if (shortage.weights[r] == 0) continue;
    if (first == kTiers) first = r;
    const Int128 bytes = (shortage.excess + shortage.weights[r] - 1) / shortage.weights[r];
    parts.push_back(absl::StrCat(FormatBytes(static_cast<std::int64_t>(bytes)), " of ",
                                 ToAbsl(NameOf(static_cast<Tier>(r))), " memory short (there are ",
                                 FormatBytes(shortage.capacity[r]), ")"));
  }
  std::string where = "on all devices";
  if (shortage.set != 0) {
    where = "on the devices that rules confine tables to, first ";
    absl::StrAppend(&where,
                    DeviceName(problem, machine, options.sets[shortage.set].devices.front()));
  }
  return absl::StrCat("no plan fits ", where, ": at least ", absl::StrJoin(parts, " or "),
                      "; most is needed by ",
                      Neediest(problem, options, shortage.set, shortage.weights, first));
}

// The table of those with the largest shards that fits nowhere by itself.
std::optional<std::uint32_t> HopelessTable(const Machine& machine, const OptionSet& options) {
  for (std::uint32_t t = 0; t < options.tables(); ++t) {
    bool fits = false;
    for (std::uint32_t o = 0; o < options.of(t).size() && !fits; ++o) {
      Layout layout(options, machine);
      fits = Packer(layout, PackRule::kMaxNorm, 1).TryPlace(t, o);
    }
    if (!fits) return t;
  }
  return std::nullopt;
}

}  // namespace

absl::Status NoPlanError(const Problem& problem, const Machine& machine, const OptionSet& options,
                         bool refuted) {
  if (const std::optional<Shortage> shortage = FindShortage(machine, options)) {
    return absl::ResourceExhaustedError(Describe(problem, machine, options, *shortage));
  }
  // A layout per table is dear: only where the tables are few.
  constexpr std::uint32_t kTablesTried = 1000;
  if (options.tables() <= kTablesTried) {
    if (const std::optional<std::uint32_t> table = HopelessTable(machine, options)) {
      const TierBytes least = Lightest(options, *table, {1, 1, 1}).total;
      return absl::ResourceExhaustedError(absl::StrCat(
          "table ", problem.tables[*table].name,
          " fits nowhere, even alone: cut for the fewest bytes it needs ", FormatBytes(least[0]),
          " of device, ", FormatBytes(least[1]), " of host and ", FormatBytes(least[2]),
          " of ssd memory, and no host has both room"));
    }
  }
  const TierBytes capacity = CapacityOf(machine, options.sets[0]);
  return absl::ResourceExhaustedError(
      absl::StrCat(refuted ? "no plan fits: " : "no plan was found within the budget: ",
                   "the bytes suffice in sum (device memory ", FormatBytes(capacity[0]),
                   "), but whole shards do not fit together; most is needed by ",
                   Neediest(problem, options, 0, {1, 1, 1}, 0)));
}

}  // namespace embla::planner
