#include "core/planner/solver/narrow.h"

#include <algorithm>

namespace embla::planner {
namespace {

// No plan can have a higher load.
Ticks HighestLoad(const OptionSet& options, const Machine& machine) {
  Int128 sum = 0;
  for (std::uint32_t t = 0; t < options.tables(); ++t) {
    Ticks most = 0;
    for (const Option& option : options.of(t)) {
      most = std::max({most, option.total_work(), option.total_host_work()});
    }
    sum += most;
  }
  const std::int64_t slowest = *std::max_element(machine.slowdown.begin(), machine.slowdown.end());
  const Int128 load = (sum * std::max(slowest, kSlowdownOne) >> kSlowdownShift) + 1;
  return static_cast<Ticks>(std::min<Int128>(load, kTicksMax));
}

constexpr int kFinest = 7;      // Questions come as near as 2^-7 of the interval.
constexpr int kQuestions = 12;  // Each may spend that part of the budget.

// Asks with few detours first, in both orders, and at last without limit.
Search::Answer AskForPlan(Search& search, Ticks z, bool tight, std::int64_t budget) {
  using Order = Search::Order;
  for (const int detours : {0, 1, 2, 3, 5, 8}) {
    for (const bool by_bytes : {false, true}) {
      if (by_bytes && !tight) continue;
      for (const Order order : {Order::kEmptiestFirst, Order::kFullestFirst}) {
        const Search::Answer answer = search.Decide({z, order, by_bytes, detours, budget / 32});
        if (answer != Search::Answer::kUnknown) return answer;
      }
    }
  }
  if (tight) {
    const Search::Answer answer = search.Decide({.z = z, .by_bytes = true, .budget = budget / 6});
    if (answer != Search::Answer::kUnknown) return answer;
  }
  return search.Decide({.z = z, .budget = budget / 3});
}

}  // namespace

SearchOutcome NarrowBySearch(const OptionSet& options, const Machine& machine, const Prices& prices,
                             const SearchLimits& limits, std::optional<Layout>* best) {
  using Answer = Search::Answer;
  Search search(options, machine, prices);
  if (!best->has_value()) {
    const Answer answer =
        AskForPlan(search, HighestLoad(options, machine), true, limits.operations_max);
    if (answer != Answer::kPlan) {
      return {answer == Answer::kNone ? kTicksMax : limits.bound, search.operations()};
    }
    best->emplace(search.TakeLayout());
  }
  Ticks high = (*best)->FindPeak().load;     // There is such a plan.
  Ticks low = std::min(limits.bound, high);  // There is none below.
  int below_high = 1, above_low = 1;         // Distances, as powers of 1 / 2 of the interval.
  const bool tight = std::any_of(prices.byte.begin(), prices.byte.end(),
                                 [](std::int64_t price) { return price > 0; });
  const std::int64_t share = limits.operations_max / kQuestions;
  while (search.operations() < limits.operations_max &&
         (below_high <= kFinest || above_low <= kFinest)) {
    const Int128 allowed = static_cast<Int128>(low) * limits.goal_gap_ppm / 1'000'000;
    if (high - low <= allowed) break;
    const bool for_plan = below_high <= above_low;
    const Ticks z = for_plan ? high - std::max<Ticks>(1, (high - low) >> below_high)
                             : low + ((high - low) >> above_low);
    const Answer answer =
        for_plan ? AskForPlan(search, z, tight, share) : search.Decide({.z = z, .budget = share});
    if (answer == Answer::kPlan) {
      best->emplace(search.TakeLayout());
      high = (*best)->FindPeak().load;
    } else if (answer == Answer::kNone) {
      low = z + 1;
    } else {
      ++(for_plan ? below_high : above_low);
    }
  }
  return {low, search.operations()};
}

}  // namespace embla::planner
