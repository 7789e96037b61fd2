// How a lower bound on any plan's time is found and proven.
//
// Problem. A plan chooses one option per table (a cut into shards) and a device per shard. z is the
// time of the slowest device; the memory of each tier holds the shards' bytes. Lagrangian duality:
// for all weights mu >= 0 on the devices (sum 1) and all prices lambda >= 0 on bytes,
//
//   z >= sum over tables of min over options (mu-weighted work + lambda * bytes) - lambda * memory.
//
// Proof: a weighted mean of device times is at most the greatest of them, and a plan that fits pays
// at most lambda * memory for its bytes. So *any* prices prove a bound, and the tables no longer
// depend on each other: under given prices each takes its cheapest option (Cheapest, Evaluate).
//
// Weights. Devices differ by class only, so the best mu is in proportion to 1 / slowdown
// (weight_). Where hosts' networks count, they take a share of the weight in 2^-10ths
// (Prices::network), found by ternary search (MaximiseNetwork).
//
// Prices. The value is concave and piecewise linear in lambda, with slope bytes - memory. For each
// tier BracketTier multiplies or divides the price by 4 until the slope changes sign, then goes to
// where the tangents of both ends meet (Meet), with a bisection every fourth step against slow
// convergence. One tier is searched inside the other; a tier that fits at price 0 costs one
// evaluation, and usually at most one tier is tight.
//
// Deadlines. To prove that no plan is below z, options whose longest shard takes z or more need not
// be looked at, which raises the minimum: DeadlineBound bisects over z with limits.time = z - 1.
//
// Invariants. Integers only, so that every machine finds the same bound. The search for prices
// rounds; Bound() evaluates the prices exactly in 128 bits, and the certificate has only prices and
// bound, which checker/ recomputes without this code. price_max_ keeps option costs within 63 bits.
//
// Cost: one evaluation is a scan of all options in scope; about 50 evaluations per tight tier.
//
// Covered by brute_force_test.cc (bound <= optimum), solve_test.cc (the same bound on any machine),
// checker_test.cc (tampered certificates).
#include "core/planner/solver/bound.h"

#include <algorithm>

#include "core/base/check.h"

namespace embla::planner {
namespace {

constexpr int kShareShift = 10;
constexpr std::int64_t kShareOne = std::int64_t{1} << kShareShift;
constexpr int kTangentSteps = 40;

std::int64_t Priced(std::int64_t price, std::int64_t bytes) {
  return static_cast<std::int64_t>((static_cast<Int128>(price) * bytes) >> kPriceShift);
}

// The point where the tangents of a concave function at `a` (slope up) and `b` (slope down) meet.
struct Point {
  std::int64_t price = 0;
  Int128 value = 0;  // Ticks.
  Int128 slope = 0;  // Ticks x 2^-20 per unit of price.
};
std::int64_t Meet(const Point& a, const Point& b) {
  const Int128 rise = ((b.value - a.value) << kPriceShift) + a.slope * a.price - b.slope * b.price;
  const Int128 at = rise / (a.slope - b.slope);
  const Int128 margin = (b.price - a.price) / 64;
  return static_cast<std::int64_t>(std::clamp<Int128>(at, a.price + margin, b.price - margin));
}

}  // namespace

DualProblem::DualProblem(const OptionSet& options, const Machine& machine, std::uint32_t set,
                         Charge charge)
    : set_(options.sets[set]) {
  weight_.assign(machine.devices(), 0);
  unit_ = INT64_MAX;
  for (const std::uint32_t d : set_.devices) {
    weight_[d] = (std::int64_t{1} << 40) / machine.slowdown[d];
    weights_ += weight_[d];
    unit_ = std::min(unit_, weight_[d] * machine.slowdown[d]);
    capacity_[0] += machine.capacity[d];
  }
  for (const std::uint32_t h : set_.hosts) {
    capacity_[1] += machine.host_capacity[h][1];
    capacity_[2] += machine.host_capacity[h][2];
  }
  // A set of devices is inside this one when each of them is.
  std::vector<bool> inside(options.sets.size());
  for (std::size_t s = 0; s < inside.size(); ++s) {
    const auto& devices = options.sets[s].devices;
    inside[s] = std::all_of(devices.begin(), devices.end(),
                            [this](std::uint32_t d) { return set_.has[d] != 0; });
  }
  std::int64_t most = 1;
  begin_.push_back(0);
  for (std::uint32_t t = 0; t < options.tables(); ++t) {
    if (!inside[options.set_of[t]]) continue;
    tables_.push_back(t);
    const std::int64_t slowdown = options.devices_of(t).slowdown_min;
    Ticks shortest = kTicksMax;
    for (const Option& option : options.of(t)) {
      work_.push_back(option.total_work());
      network_.push_back(option.total_host_work());
      has_network_ |= option.host_work > 0;
      const Ticks time = std::max(Slowed(option.work, slowdown), option.host_work);
      shard_time_.push_back(time);
      shortest = std::min(shortest, time);
      longest_shard_ = std::max(longest_shard_, time);
      shard_bytes_.push_back(option.bytes[0]);
      for (std::size_t r = 0; r < kTiers; ++r) {
        bytes_[r].push_back(charge == Charge::kTrue ? option.total[r]
                                                    : option.bytes[r] * option.shards);
        most = std::max(most, bytes_[r].back());
      }
    }
    unavoidable_ = std::max(unavoidable_, shortest);
    begin_.push_back(static_cast<std::uint32_t>(work_.size()));
  }
  const Int128 price_max = (static_cast<Int128>(1) << (59 + kPriceShift)) / most;
  price_max_ = static_cast<std::int64_t>(std::min<Int128>(price_max, kPriceMax));
}

std::int64_t DualProblem::HostWeight(const Prices& prices) const {
  return weights_ * prices.network / static_cast<std::int64_t>(set_.hosts.size());
}

std::int64_t DualProblem::NetworkFactor(const Prices& prices) const {
  return static_cast<std::int64_t>((static_cast<Int128>(HostWeight(prices)) << kSlowdownShift) /
                                   unit_);
}

std::uint32_t DualProblem::Cheapest(const Prices& prices, const Limits& limits, std::uint32_t from,
                                    std::uint32_t to, std::int64_t* least) const {
  std::uint32_t best = kNone;
  *least = INT64_MAX;
  const std::int64_t factor = prices.network == 0 ? 0 : NetworkFactor(prices);
  for (std::uint32_t i = from; i < to; ++i) {
    if (shard_time_[i] > limits.time || shard_bytes_[i] > limits.bytes) continue;
    std::int64_t cost = work_[i];
    if (prices.network != 0) {
      cost = static_cast<std::int64_t>((static_cast<Int128>(cost) * (kShareOne - prices.network) +
                                        static_cast<Int128>(network_[i]) * factor) >>
                                       kShareShift);
    }
    for (std::size_t r = 0; r < kTiers; ++r) {
      if (prices.byte[r] != 0) cost += Priced(prices.byte[r], bytes_[r][i]);
    }
    if (cost < *least) {
      *least = cost;
      best = i;
    }
  }
  return best;
}

Dual DualProblem::Evaluate(const Prices& prices, const Limits& limits, const TierBytes& capacity) {
  Dual dual;
  std::int64_t least = 0;
  std::array<std::int64_t, kTiers> bytes{};
  for (std::size_t k = 0; k < tables_.size(); ++k) {
    const std::uint32_t best = Cheapest(prices, limits, begin_[k], begin_[k + 1], &least);
    if (best == kNone) {
      dual.feasible = false;
      return dual;
    }
    dual.value += least;
    for (std::size_t r = 0; r < kTiers; ++r) bytes[r] += bytes_[r][best];
  }
  operations_ += static_cast<std::int64_t>(work_.size());
  for (std::size_t r = 0; r < kTiers; ++r) {
    dual.bytes[r] = bytes[r];
    dual.value -= (static_cast<Int128>(prices.byte[r]) * capacity[r]) >> kPriceShift;
  }
  return dual;
}

Dual DualProblem::Maximise(const Limits& limits, const TierBytes& capacity, Prices* prices) {
  if (has_network_) return MaximiseNetwork(limits, capacity, prices);
  return MaximiseTier(static_cast<int>(kTiers) - 1, limits, capacity, prices);
}

Dual DualProblem::MaximiseTier(int tier, const Limits& limits, const TierBytes& capacity,
                               Prices* prices) {
  if (tier < 0) return Evaluate(*prices, limits, capacity);
  const std::int64_t warm = prices->byte[tier];
  prices->byte[tier] = 0;
  const Dual free = MaximiseTier(tier - 1, limits, capacity, prices);
  if (!free.feasible || !free.bounded || free.bytes[tier] <= capacity[tier]) return free;
  prices->byte[tier] = std::max<std::int64_t>(warm, 1 << 10);
  return BracketTier(tier, limits, capacity, prices);
}

Dual DualProblem::BracketTier(int tier, const Limits& limits, const TierBytes& capacity,
                              Prices* prices) {
  Dual best;
  Prices best_prices;
  bool have_best = false;
  const auto look = [&](std::int64_t price) {
    prices->byte[tier] = price;
    const Dual dual = MaximiseTier(tier - 1, limits, capacity, prices);
    if (!have_best || dual.value > best.value) {
      best = dual;
      best_prices = *prices;
      have_best = true;
    }
    return Point{price, dual.value, dual.bytes[tier] - capacity[tier]};
  };
  Point high = look(prices->byte[tier]);
  Point low = high;
  while (high.slope > 0 && high.price < price_max_ / 4) {
    low = high;
    high = look(high.price * 4);
  }
  if (high.slope > 0) {
    best.bounded = false;
    *prices = best_prices;
    return best;
  }
  while (low.slope <= 0 && low.price > 0) {
    high = low;
    low = look(low.price / 4);
  }
  for (int step = 0; step < kTangentSteps && high.price - low.price > 1 + (high.price >> 20);
       ++step) {
    const std::int64_t at =
        step % 4 == 3 ? low.price + (high.price - low.price) / 2 : Meet(low, high);
    if (at <= low.price || at >= high.price) break;
    const Point point = look(at);
    (point.slope > 0 ? low : high) = point;
  }
  *prices = best_prices;
  return best;
}

Dual DualProblem::MaximiseNetwork(const Limits& limits, const TierBytes& capacity, Prices* prices) {
  // The value is concave in the network's share: ternary search over its 2^10 steps.
  const auto look = [&](std::int64_t share) {
    prices->network = share;
    return MaximiseTier(static_cast<int>(kTiers) - 1, limits, capacity, prices);
  };
  std::int64_t low = 0, high = kShareOne - 1;
  while (high - low > 2) {
    const std::int64_t third = (high - low) / 3;
    const Dual a = look(low + third);
    if (!a.feasible || !a.bounded) return a;
    const Dual b = look(high - third);
    if (a.value < b.value) {
      low += third;
    } else {
      high -= third;
    }
  }
  Dual best = look(low);
  std::int64_t best_share = low;
  for (std::int64_t share = low + 1; share <= high; ++share) {
    const Dual dual = look(share);
    if (dual.value > best.value) {
      best = dual;
      best_share = share;
    }
  }
  return look(best_share);
}

Ticks DualProblem::Bound(const Prices& prices, const Limits& limits) {
  const std::int64_t share = kShareOne - prices.network;
  const std::int64_t host_weight = HostWeight(prices);
  Int128 value = 0;
  for (std::size_t k = 0; k < tables_.size(); ++k) {
    Int128 least = -1;
    for (std::uint32_t i = begin_[k]; i < begin_[k + 1]; ++i) {
      if (shard_time_[i] > limits.time) continue;
      Int128 cost = static_cast<Int128>(unit_) * share * work_[i] +
                    (static_cast<Int128>(host_weight) << kSlowdownShift) * network_[i];
      for (std::size_t r = 0; r < kTiers; ++r) {
        cost += (static_cast<Int128>(prices.byte[r]) << Certificate::kPriceScale) * bytes_[r][i];
      }
      if (least < 0 || cost < least) least = cost;
    }
    if (least < 0) return kTicksMax;
    value += least;
  }
  operations_ += static_cast<std::int64_t>(work_.size());
  for (std::size_t r = 0; r < kTiers; ++r) {
    value -= (static_cast<Int128>(prices.byte[r]) << Certificate::kPriceScale) * capacity_[r];
  }
  if (value <= 0) return 0;
  const Int128 weights = static_cast<Int128>(weights_) * share +
                         static_cast<Int128>(host_weight) * static_cast<int>(set_.hosts.size());
  const Int128 scale = weights << kSlowdownShift;
  return static_cast<Ticks>(std::min<Int128>((value + scale - 1) / scale, kTicksMax));
}

Ticks DualProblem::DeadlineBound(Ticks known, int precision, Prices* prices) {
  // Any plan has the longest of the shortest shards, and without a table nothing is proven.
  Ticks low = std::max(known, unavoidable_);
  if (tables_.empty() || longest_shard_ < low) return low;
  Prices trial = *prices;
  const auto proven = [&](Ticks z) {  // The bound when shards of z and longer are out.
    const Limits limits{.time = z - 1};
    const Ticks held = Bound(trial, limits);
    if (held >= z) return held;
    const Dual dual = Maximise(limits, capacity_, &trial);
    return dual.feasible && dual.bounded ? Bound(trial, limits) : kTicksMax;
  };
  Ticks high = proven(low + 1);
  if (high <= low) return low;
  low += 1;
  *prices = trial;
  if (high == kTicksMax) high = std::max(low + 1, longest_shard_ + 1);
  ++high;  // Not known to be proven.
  while (high - low > std::max<Ticks>(1, low >> precision)) {
    const Ticks middle = low + (high - low) / 2;
    if (proven(middle) >= middle) {
      low = middle;
      *prices = trial;
    } else {
      high = middle;
    }
  }
  return low;
}

Certificate DualProblem::MakeCertificate(Ticks bound, const Prices& prices) const {
  Certificate certificate;
  certificate.bound = bound;
  certificate.weight = weight_;
  for (std::int64_t& weight : certificate.weight) weight *= kShareOne - prices.network;
  certificate.host_weight = HostWeight(prices);
  certificate.price = prices.byte;
  return certificate;
}

void DualProblem::Pick(const Prices& prices, const Limits& limits,
                       std::vector<std::uint32_t>* picks) {
  picks->resize(tables_.size());
  std::int64_t least = 0;
  for (std::size_t k = 0; k < tables_.size(); ++k) {
    std::uint32_t best = Cheapest(prices, limits, begin_[k], begin_[k + 1], &least);
    // No option is within the limits: here the limits are wishes.
    if (best == kNone) best = Cheapest(prices, {}, begin_[k], begin_[k + 1], &least);
    EMBLA_CHECK(best != kNone);
    (*picks)[k] = best - begin_[k];
  }
  operations_ += static_cast<std::int64_t>(work_.size());
}

}  // namespace embla::planner
