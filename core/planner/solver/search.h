// Few tables: "is there a plan with max load <= z?", answered by exhaustive search within a budget.
//
// With about one shard per device the dual bound is far below what whole shards can reach. The
// search decides table by table, the most work first, over options and devices; devices (and
// hosts) that carry the same are tried once. A branch ends when the work that remains, at its
// least, is more than the room that is left; room smaller than any remaining shard is no room. The
// same is asked of every tier's bytes, and of work and bytes together under the dual's prices. A
// "no" is a proof (without a certificate); a "yes" is a plan. Covered by brute_force_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/solver/bound.h"
#include "core/planner/solver/layout.h"
#include "core/planner/solver/placed_loads.h"

namespace embla::planner {

class Search {
 public:
  enum class Answer : std::uint8_t { kPlan, kNone, kUnknown };
  enum class Order : std::uint8_t { kFullestFirst, kEmptiestFirst };

  // Borrowed; outlive this object.
  Search(const OptionSet& options, const Machine& machine, const Prices& prices);

  struct Question {
    Ticks z = 0;
    Order order = Order::kFullestFirst;
    bool by_bytes = false;  // Tables with much work or many bytes first, not only much work.
    // Choices on the way to a plan that may differ from the one that looks best. Few of them find
    // plans soon; only without a limit is there a "no".
    int detours_max = kAnyDetours;
    std::int64_t budget = 0;  // Operations.
  };
  static constexpr int kAnyDetours = 1 << 30;

  // kUnknown: the budget or the detours were not enough. After kPlan, TakeLayout() has the plan.
  Answer Decide(const Question& question);
  Layout TakeLayout() const;

  std::int64_t operations() const { return operations_; }

 private:
  struct Choice {
    std::uint32_t option = 0;
    Layout::Targets targets;
  };
  // Least that the tables from one on still need.
  struct Rest {
    Int128 work = 0;
    Int128 priced = 0;  // Work and bytes under the prices.
    std::array<Int128, kTiers> bytes{};
    Ticks smallest_shard = kTicksMax;
  };

  // A dual feasible function: shards with x_i > 0 that fit a room r of work satisfy
  // sum(ceil(parts x_i / z) - 1) <= ceil(parts r / z) - 1. Mixed with priced work, since a table
  // spread thinly has no grains.
  struct Grain {
    std::int64_t parts = 2;
    Int128 value = 0;          // Value of a grain, in ticks x 2^-20.
    std::int64_t share = 0;    // Factor of the priced work.
    std::vector<Int128> rest;  // By depth, as Rest.
  };

  bool Prepare(Ticks z);
  // The grains that leave least room at the start; false: some refutes z at once.
  bool ChooseGrains();
  Grain MakeGrain(std::int64_t parts, std::int64_t share) const;
  std::int64_t GrainsIn(const Grain& grain, Ticks work) const;
  Int128 PricedRoom() const;
  Int128 GrainRoom(const Grain& grain, Int128 priced_room) const;
  Answer Descend(std::size_t depth);
  Answer TryOption(std::size_t depth, std::uint32_t option);
  Answer PlaceShards(std::size_t depth, const Option& option, std::size_t first_rank,
                     const std::vector<std::uint32_t>& ranked);
  Answer PlaceRows(std::size_t depth, const Option& option, std::size_t first);
  bool HasRoom(std::size_t depth) const;
  bool FitsShard(const Option& option, std::uint32_t device) const;
  bool FitsRow(const Option& option, std::uint32_t host) const;
  bool SameDevice(std::uint32_t a, std::uint32_t b) const;
  bool SameHost(std::uint32_t a, std::uint32_t b) const;
  bool MayJoin(std::uint32_t table, const Option& option, std::uint32_t device) const;
  Int128 Priced(const Option& option, Int128 work, bool packed) const;
  std::vector<std::uint32_t> Ranked(std::uint32_t table) const;

  const OptionSet& options_;
  const Machine& machine_;
  const Prices prices_;
  bool hosts_matter_ = false;            // Some option loads or names a host.
  std::vector<std::uint32_t> class_of_;  // By device: same class, same limits and rules.
  std::vector<std::uint32_t> tables_;    // In the order of the search.
  std::vector<std::vector<std::uint32_t>> order_of_;  // By depth: options, least cost first.
  std::vector<Rest> rest_;                            // By depth; one more at the end.
  std::vector<Ticks> work_limit_;                     // By device: the most work with a load <= z.
  Ticks work_limit_max_ = 0;
  std::vector<Grain> grains_;

  Ticks z_ = 0;
  Order order_ = Order::kFullestFirst;
  bool by_bytes_ = false;
  std::int64_t stop_at_ = 0;
  int detours_left_ = 0;
  bool left_out_ = false;  // Some choice was skipped for want of detours.
  PlacedLoads loads_;
  std::vector<Choice> choices_;  // By table.
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
