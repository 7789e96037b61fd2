#include "core/planner/solver/portfolio.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/planner/solver/improve.h"
#include "core/planner/solver/pack.h"
#include "core/planner/solver/ratio.h"
#include "core/planner/solver/refine.h"

namespace embla::planner {
namespace {

// Packings kept for improvement: one takes 300 bytes per table.
constexpr std::size_t kKeptFew = 4;
constexpr std::size_t kKeptMany = 12;
constexpr std::uint32_t kManyTables = 20'000;
// Improved packings kept for refinement, and what one may spend beside 1000 per table.
constexpr std::size_t kRefined = 3;
constexpr std::int64_t kRefineOperations = 3'000'000;

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
  for (std::size_t r = 0; r < kTiers; ++r) loose_ &= dual.bytes[r] <= Int128{capacity[r] / 10} * 8;
  const std::int64_t size = static_cast<std::int64_t>(options.tables());
  budget_ = settings.operations_max != 0 ? settings.operations_max
                                         : 60'000'000 + size * 3000 + size * machine.devices() * 4;
}

Ticks Portfolio::Goal() const {
  return proof_.bound +
         static_cast<Ticks>(static_cast<Int128>(proof_.bound) * settings_.goal_gap_ppm / 1'000'000);
}

Ticks Portfolio::GoodEnough() const { return std::max(Goal(), proof_.bound + proof_.bound / 100); }

Portfolio::Plan Portfolio::Prepare(const Attempt& attempt) {
  Plan plan;
  plan.rule = attempt.rule;
  plan.limits = {
      .time = static_cast<Ticks>(static_cast<Int128>(proof_.bound) * attempt.work_percent / 100),
      .bytes = options_.sets[0].capacity_max / 100 * attempt.bytes_percent};
  plan.capacity = dual_.capacity();
  for (std::int64_t& bytes : plan.capacity) bytes -= bytes / 1000 * attempt.spare_permille;
  plan.prices = prices_;
  if (loose_) return plan;
  const Dual dual = dual_.Maximise(plan.limits, plan.capacity, &plan.prices);
  // Limits that leave a table no option, or no room: they were wishes.
  if (!dual.feasible || !dual.bounded) plan.prices = prices_;
  return plan;
}

std::vector<std::uint32_t> Portfolio::PickFor(const Plan& plan) {
  Prices prices = plan.prices;
  std::vector<std::uint32_t> picks;
  dual_.Pick(prices, plan.limits, &picks);
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
      if (sum[r] <= plan.capacity[r]) continue;
      const std::int64_t more = 1 + (prices.byte[r] >> (16 - round / 4));
      if (prices.byte[r] + more > dual_.price_max()) continue;
      prices.byte[r] += more;
      fits = false;
    }
    if (fits) break;
    dual_.Pick(prices, plan.limits, &picks);
  }
  return picks;
}

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
  Pack(std::move(picks), PackRule::kMaxNorm);
}

void Portfolio::Pack(std::vector<std::uint32_t> picks, PackRule rule) {
  // Limits that do not bind give the same picks again.
  for (const auto& [before, with] : tried_) {
    if (with == rule && before == picks) return;
  }
  Layout layout(options_, machine_);
  Packer packer(layout, rule, proof_.bound);
  const bool packed = packer.PlaceAll(picks);
  operations_ += packer.operations();
  tried_.emplace_back(std::move(picks), rule);
  if (!packed) return;
  const Ticks load = layout.FindPeak().load;
  auto at = packed_.begin();
  while (at != packed_.end() && at->load <= load) ++at;
  const std::size_t kept = options_.tables() > kManyTables ? kKeptFew : kKeptMany;
  if (at - packed_.begin() >= static_cast<std::ptrdiff_t>(kept)) return;
  packed_.insert(at, Packed{load, rule, false, std::make_unique<Layout>(std::move(layout))});
  if (packed_.size() > kept) packed_.pop_back();
}

void Portfolio::Improve(Layout* layout, PackRule rule) {
  Improver improver(*layout, rule);
  improver.Run(Goal(), std::max<std::int64_t>(0, budget_ - operations_) / 2);
  operations_ += improver.operations();
}

void Portfolio::Finish(Packed one) {
  one.load = one.layout->FindPeak().load;
  auto at = finished_.begin();
  while (at != finished_.end() && at->load <= one.load) ++at;
  finished_.insert(at, std::move(one));
  if (finished_.size() > kRefined) finished_.pop_back();
}

void Portfolio::ImproveAll() {
  for (Packed& one : packed_) {
    if (!finished_.empty() && (BestLoad() <= Goal() || operations_ > budget_)) break;
    Improve(one.layout.get(), one.rule);
    Finish(std::move(one));
  }
  packed_.clear();
}

void Portfolio::RefineAll() {
  const std::int64_t budget = kRefineOperations + 1000 * std::int64_t{options_.tables()};
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    if (loose_ || BestLoad() <= GoodEnough() || operations_ > budget_) break;
    if (finished_[i].refined) continue;
    Packed one = std::move(finished_[i]);
    finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(i));
    Refiner refiner(std::move(one.layout), one.rule, proof_.bound);
    refiner.Run(Goal(), budget);
    operations_ += refiner.operations();
    one.layout = refiner.Release();
    one.refined = true;
    Improve(one.layout.get(), one.rule);
    Finish(std::move(one));
    i = static_cast<std::size_t>(-1);  // The order has changed: look again.
  }
}

std::optional<Layout> Portfolio::Run() {
  static constexpr Attempt kLoose[] = {{100, 100, 0, PackRule::kLoad},
                                       {50, 100, 0, PackRule::kLoad},
                                       {25, 100, 0, PackRule::kLoad},
                                       {100, 50, 10, PackRule::kMaxNorm}};
  static constexpr Attempt kTight[] = {
      {100, 25, 10, PackRule::kQuadratic}, {100, 25, 3, PackRule::kMaxNorm},
      {100, 50, 3, PackRule::kQuadratic},  {100, 50, 3, PackRule::kMaxNorm},
      {100, 25, 1, PackRule::kQuadratic},  {100, 50, 1, PackRule::kQuadratic},
      {100, 25, 1, PackRule::kMaxNorm},    {100, 100, 1, PackRule::kMaxNorm},
      {100, 50, 10, PackRule::kMaxNorm},   {25, 25, 10, PackRule::kMaxNorm},
      {100, 100, 30, PackRule::kMaxNorm}};
  const std::span<const Attempt> schedule =
      loose_ ? std::span<const Attempt>(kLoose) : std::span<const Attempt>(kTight);
  for (const Attempt& attempt : schedule) {
    if (BestLoad() <= Goal() || (!packed_.empty() && operations_ > budget_ / 3)) break;
    const Plan plan = Prepare(attempt);
    Pack(PickFor(plan), plan.rule);
    // Loose memory: the first packing is nearly always good enough after a few steps.
    if (loose_) ImproveAll();
  }
  ImproveAll();
  RefineAll();
  // Further attempts for the case that these did not come near: they are cheap as long as there is
  // budget.
  static constexpr Attempt kMore[] = {
      {100, 35, 5, PackRule::kQuadratic}, {100, 15, 5, PackRule::kQuadratic},
      {50, 25, 5, PackRule::kQuadratic},  {50, 50, 5, PackRule::kQuadratic},
      {100, 35, 2, PackRule::kMaxNorm},   {100, 15, 2, PackRule::kMaxNorm},
      {50, 25, 5, PackRule::kMaxNorm},    {35, 35, 10, PackRule::kMaxNorm},
      {100, 70, 5, PackRule::kQuadratic}, {100, 10, 20, PackRule::kQuadratic},
      {70, 20, 20, PackRule::kMaxNorm},   {35, 15, 20, PackRule::kQuadratic},
      {70, 40, 40, PackRule::kMaxNorm},   {70, 40, 60, PackRule::kQuadratic}};
  for (const Attempt& attempt : kMore) {
    if (loose_ || BestLoad() <= GoodEnough() || operations_ > budget_ / 3 * 2) break;
    const Plan plan = Prepare(attempt);
    Pack(PickFor(plan), plan.rule);
    ImproveAll();
    RefineAll();
  }
  if (finished_.empty()) {
    TryFewestBytes();
    ImproveAll();
    RefineAll();
  }
  operations_ += dual_.operations();
  if (finished_.empty()) return std::nullopt;
  return std::move(*finished_.front().layout);
}

}  // namespace embla::planner
