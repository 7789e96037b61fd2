// The dual bound: prices of memory under which every table takes its cheapest option by itself.
// The file bound.cc begins with the idea.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/planner/problem/machine.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/options.h"

namespace embla::planner {

// Prices that the solver charges beside work.
struct Prices {
  std::array<std::int64_t, kTiers> byte{};  // Ticks x 2^-20 per byte of each tier.
  std::int64_t network = 0;  // Share of the weight on hosts' networks, of 2^10; below 2^10.
};
inline constexpr int kPriceShift = 20;
inline constexpr std::int64_t kPriceMax = std::int64_t{1} << 42;

// Filters on options.
struct Limits {
  Ticks time = kTicksMax;          // Longest time of a shard on the fastest allowed device.
  std::int64_t bytes = INT64_MAX;  // Most device memory of a shard.
};

// Sums over the cheapest option of every table in scope.
struct Dual {
  Int128 value = 0;      // The sum of the minima less the price of the memory, in ticks.
  bool feasible = true;  // False: some table has no option within the limits.
  bool bounded = true;   // False: no prices make the tables fit the memory.
  std::array<Int128, kTiers> bytes{};
};

// The dual over one scope: a device set and the tables that cannot leave it.
class DualProblem {
 public:
  // Bytes charged for a shard: their true sum, for a bound; or what packing charges, the largest
  // shard's bytes for each.
  enum class Charge : std::uint8_t { kTrue, kPacked };

  // `options` is borrowed and outlives this object.
  DualProblem(const OptionSet& options, const Machine& machine, std::uint32_t set,
              Charge charge = Charge::kTrue);

  // Prices near the best for `capacity`, warm-started from `*prices`.
  Dual Maximise(const Limits& limits, const TierBytes& capacity, Prices* prices);
  // The sums under given prices.
  Dual Evaluate(const Prices& prices, const Limits& limits, const TierBytes& capacity);

  // The bound that `prices` prove when shards longer than `limits.time` are out; kTicksMax when a
  // table has no option left. Exact.
  Ticks Bound(const Prices& prices, const Limits& limits);
  // The greatest z within 1 / 2^precision for which prices prove that no plan is below it; never
  // less than `known`. The prices that prove it replace *prices.
  Ticks DeadlineBound(Ticks known, int precision, Prices* prices);
  Certificate MakeCertificate(Ticks bound, const Prices& prices) const;

  // Cheapest option of every table of the scope, as an index into its options. Scope 0 has all.
  void Pick(const Prices& prices, const Limits& limits, std::vector<std::uint32_t>* picks);

  const TierBytes& capacity() const { return capacity_; }
  // At most kPriceMax, and so that no option's priced bytes overflow.
  std::int64_t price_max() const { return price_max_; }
  std::size_t size() const { return work_.size(); }
  bool empty() const { return tables_.empty(); }
  // Options looked at so far.
  std::int64_t operations() const { return operations_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  // Position of the cheapest option between `from` and `to`, or kNone.
  std::uint32_t Cheapest(const Prices& prices, const Limits& limits, std::uint32_t from,
                         std::uint32_t to, std::int64_t* least) const;
  Dual MaximiseTier(int tier, const Limits& limits, const TierBytes& capacity, Prices* prices);
  Dual BracketTier(int tier, const Limits& limits, const TierBytes& capacity, Prices* prices);
  Dual MaximiseNetwork(const Limits& limits, const TierBytes& capacity, Prices* prices);
  std::int64_t HostWeight(const Prices& prices) const;
  std::int64_t NetworkFactor(const Prices& prices) const;

  const DeviceSet& set_;
  std::vector<std::uint32_t> tables_;  // In scope.
  std::vector<std::uint32_t> begin_;   // Into the columns below, by position in tables_.
  // The options of the scope as columns; work, network and bytes are of all shards together.
  std::vector<Ticks> work_, shard_time_, network_;
  std::vector<std::int64_t> shard_bytes_;
  std::array<std::vector<std::int64_t>, kTiers> bytes_;
  bool has_network_ = false;
  Ticks longest_shard_ = 0;  // Longest shard of all options.
  Ticks unavoidable_ = 0;    // Longest of the tables' shortest shards.
  TierBytes capacity_{};
  std::int64_t price_max_ = kPriceMax;
  std::vector<std::int64_t> weight_;  // By device, before the network takes its share.
  std::int64_t weights_ = 0;          // Their sum.
  std::int64_t unit_ = 0;             // Least weight x slowdown, about 2^40.
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
