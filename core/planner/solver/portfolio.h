// The bound and the portfolio of packings for one group's problem: steps 2 to 4 of solve.h.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/bound.h"
#include "core/planner/solver/layout.h"
#include "core/planner/solver/options.h"
#include "core/planner/solver/pack.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

// The bound, which is proven before any plan is made.
struct Proof {
  Ticks bound = 0;
  Certificate certificate;
  Prices prices;     // Prices of the scope that has all devices.
  bool fits = true;  // False: no plan fits the memory.
  std::int64_t operations = 0;
};
Proof ProveBound(const OptionSet& options, const Machine& machine);

class Portfolio {
 public:
  // All borrowed; outlive this object.
  Portfolio(const OptionSet& options, const Machine& machine, const Proof& proof,
            const SolveOptions& settings);

  // The best layout found; none when nothing fitted.
  std::optional<Layout> Run();

  std::int64_t operations() const { return operations_; }

 private:
  struct Attempt {
    std::int64_t work_percent;    // Longest shard, of the bound.
    std::int64_t bytes_percent;   // Largest shard, of a device's memory.
    std::int64_t spare_permille;  // Memory kept free for moves.
    PackRule rule;
  };

  // An attempt's limits, and the prices under them.
  struct Plan {
    PackRule rule = PackRule::kLoad;
    Limits limits;
    TierBytes capacity{};
    Prices prices;
  };

  Plan Prepare(const Attempt& attempt);
  // The last resort where memory is short: every table in its smallest form.
  void TryFewestBytes();
  // A packing that waits for improvement.
  struct Packed {
    Ticks load = 0;
    PackRule rule = PackRule::kLoad;
    bool refined = false;
    std::unique_ptr<Layout> layout;
  };

  // Keeps the packing if it is one of the best.
  void Pack(std::vector<std::uint32_t> picks, PackRule rule);
  void Improve(Layout* layout, PackRule rule);
  // Improves what was packed, the best first, and keeps the best few.
  void ImproveAll();
  void Finish(Packed one);
  // With tight memory: lowers the work of the best few (refine.h) until one is good enough.
  void RefineAll();
  Ticks BestLoad() const { return finished_.empty() ? kTicksMax : finished_.front().load; }
  std::vector<std::uint32_t> PickFor(const Plan& plan);
  Ticks Goal() const;
  // With tight memory, more kinds of attempts are not worth their time below this.
  Ticks GoodEnough() const;

  const OptionSet& options_;
  const Machine& machine_;
  const Proof& proof_;
  const SolveOptions& settings_;
  DualProblem dual_;
  Prices prices_;
  bool loose_ = false;  // Much of every memory stays free.
  std::int64_t budget_ = 0;
  std::int64_t operations_ = 0;
  std::vector<std::pair<std::vector<std::uint32_t>, PackRule>> tried_;
  std::vector<Packed> packed_;    // Least load first.
  std::vector<Packed> finished_;  // The best few after improvement, least load first.
};

}  // namespace embla::planner
