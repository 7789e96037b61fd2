#include "core/planner/solver/portfolio.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/planner/solver/improve.h"
#include "core/planner/solver/pack.h"
#include "core/planner/solver/ratio.h"

namespace embla::planner {
namespace {

// Binary digits of the bound that bisection settles; fewer where one evaluation is dear.
int PrecisionFor(std::size_t options) { return options < 4096 ? 20 : options < 200'000 ? 13 : 11; }

}  // namespace

Proof ProveBound(const OptionSet& options, const Machine& machine) {
  Proof proof;
  for (std::uint32_t set = 0; set < options.sets.size(); ++set) {
    DualProblem dual(options, machine, set);
    if (dual.empty() && set != 0) continue;
    Prices prices;
    if (!dual.empty()) {
      const Dual best = dual.Maximise({}, dual.capacity(), &prices);
      if (!best.bounded) proof.fits = false;
    }
    if (set == 0) proof.prices = prices;
    if (proof.fits) {
      const Ticks plain = dual.Bound(prices, {});
      const Ticks bound =
          dual.DeadlineBound(std::max(plain, proof.bound), PrecisionFor(dual.size()), &prices);
      if (set == 0 || bound > proof.bound) {
        proof.bound = bound;
        proof.certificate = dual.MakeCertificate(bound, prices);
      }
    }
    proof.operations += dual.operations();
  }
  return proof;
}

Portfolio::Portfolio(const OptionSet& options, const Machine& machine, const Proof& proof,
                     const SolveOptions& settings)
    : options_(options),
      machine_(machine),
      proof_(proof),
      settings_(settings),
      dual_(options, machine, 0, DualProblem::Charge::kPacked),
      prices_(proof.prices) {
  const Dual dual = dual_.Maximise({.time = proof.bound}, dual_.capacity(), &prices_);
  const TierBytes& capacity = dual_.capacity();
  loose_ = true;
  for (std::size_t r = 0; r < kTiers; ++r) loose_ &= dual.bytes[r] <= capacity[r] / 10 * 8;
  const std::int64_t size = static_cast<std::int64_t>(options.tables());
  budget_ = settings.operations_max != 0 ? settings.operations_max
                                         : 20'000'000 + size * 3000 + size * machine.devices() * 4;
}

Ticks Portfolio::Goal() const {
  return proof_.bound +
         static_cast<Ticks>(static_cast<Int128>(proof_.bound) * settings_.goal_gap_ppm / 1'000'000);
}

std::vector<std::uint32_t> Portfolio::PickFor(const Attempt& attempt) {
  const Limits limits{
      .time = static_cast<Ticks>(static_cast<Int128>(proof_.bound) * attempt.work_percent / 100),
      .bytes = options_.sets[0].capacity_max / 100 * attempt.bytes_percent};
  TierBytes capacity = dual_.capacity();
  for (std::int64_t& bytes : capacity) bytes -= bytes / 1000 * attempt.spare_permille;
  Prices prices = prices_;
  std::vector<std::uint32_t> picks;
  if (!loose_) {
    const Dual dual = dual_.Maximise(limits, capacity, &prices);
    // Limits that leave a table no option, or no room: they were wishes.
    if (!dual.feasible || !dual.bounded) prices = prices_;
  }
  dual_.Pick(prices, limits, &picks);
  // The best price splits a table or two; raise it until whole tables fit.
  for (int round = 0; round < 64 && !loose_; ++round) {
    TierBytes sum{};
    for (std::uint32_t t = 0; t < picks.size(); ++t) {
      for (std::size_t r = 0; r < kTiers; ++r) {
        const Option& option = options_.of(t)[picks[t]];
        sum[r] += option.bytes[r] * option.shards;
      }
    }
    bool fits = true;
    for (std::size_t r = 0; r < kTiers; ++r) {
      if (sum[r] <= capacity[r] || prices.byte[r] >= kPriceMax) continue;
      prices.byte[r] += 1 + (prices.byte[r] >> (16 - round / 4));
      fits = false;
    }
    if (fits) break;
    dual_.Pick(prices, limits, &picks);
  }
  return picks;
}

void Portfolio::Try(const Attempt& attempt) { Pack(PickFor(attempt), attempt.rule); }

void Portfolio::TryFewestBytes() {
  const TierBytes capacity = machine_.TotalCapacity();
  std::array<std::int64_t, kTiers> per_capacity;
  for (std::size_t r = 0; r < kTiers; ++r) per_capacity[r] = Reciprocal(capacity[r]);
  std::vector<std::uint32_t> picks;
  for (std::uint32_t t = 0; t < options_.tables(); ++t) {
    const auto options = options_.of(t);
    const auto share = [&](const Option& option) {
      // The fullest tier decides; 2^-60 of it, so that small tables differ.
      Int128 most = 0;
      for (std::size_t r = 0; r < kTiers; ++r) {
        const Int128 bytes = static_cast<Int128>(option.bytes[r]) * option.shards;
        most = std::max(most, (bytes * per_capacity[r]) >> 20);
      }
      return most;
    };
    const auto least =
        std::min_element(options.begin(), options.end(),
                         [&](const Option& a, const Option& b) { return share(a) < share(b); });
    picks.push_back(static_cast<std::uint32_t>(least - options.begin()));
  }
  Pack(picks, PackRule::kMaxNorm);
}

void Portfolio::Pack(const std::vector<std::uint32_t>& picks, PackRule rule) {
  Layout layout(options_, machine_);
  Packer packer(layout, rule, proof_.bound);
  const bool packed = packer.PlaceAll(picks);
  operations_ += packer.operations();
  if (!packed) return;
  Improver improver(layout, rule);
  improver.Run(Goal(), std::max<std::int64_t>(0, budget_ - operations_) / 2);
  operations_ += improver.operations();
  const Ticks load = layout.FindPeak().load;
  if (load >= best_load_) return;
  best_load_ = load;
  best_.emplace(std::move(layout));
}

std::optional<Layout> Portfolio::Run() {
  static constexpr Attempt kLoose[] = {{100, 100, 0, PackRule::kLoad},
                                       {50, 100, 0, PackRule::kLoad},
                                       {25, 100, 0, PackRule::kLoad},
                                       {100, 50, 10, PackRule::kMaxNorm}};
  static constexpr Attempt kTight[] = {
      {100, 25, 10, PackRule::kQuadratic}, {100, 25, 3, PackRule::kMaxNorm},
      {100, 50, 3, PackRule::kQuadratic},  {100, 50, 3, PackRule::kMaxNorm},
      {100, 50, 10, PackRule::kMaxNorm},   {100, 50, 1, PackRule::kQuadratic},
      {25, 25, 10, PackRule::kMaxNorm},    {100, 100, 30, PackRule::kMaxNorm}};
  const std::span<const Attempt> schedule =
      loose_ ? std::span<const Attempt>(kLoose) : std::span<const Attempt>(kTight);
  for (const Attempt& attempt : schedule) {
    if (best_ && (best_load_ <= Goal() || operations_ > budget_)) break;
    Try(attempt);
  }
  if (!best_) TryFewestBytes();
  operations_ += dual_.operations();
  return std::move(best_);
}

}  // namespace embla::planner
