// Lowers the load of the most loaded devices for few bytes: the byte-aware half of replan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/solver/layout.h"

namespace embla::planner {

class Shedder {
 public:
  // `layout` is borrowed; every table is placed. `bytes` is what moving one shard (or one column
  // block on a host) of each table costs; `home` the targets that cost nothing, as in
  // Layout::targets(), kUnplaced where every place costs nothing.
  Shedder(Layout& layout, std::vector<std::int64_t> bytes, std::vector<Layout::Targets> home);

  // Until the peak is at most `target`, nothing helps, or the operations are spent.
  void Run(Ticks target, std::int64_t budget);

  // The least bytes that take every device's load below `target` when shards only move: by device
  // the fractional knapsack of the surplus. Holds for the layout as it is now.
  std::int64_t ShedBound(Ticks target) const;

  std::int64_t operations() const { return operations_; }

 private:
  struct Step {
    // Gain in ticks per byte of cost, as a fraction; found when cost >= 0.
    Ticks gain = 0;
    std::int64_t cost = -1;
    Layout::Item item, back;
    std::uint32_t to = 0;
    bool swaps = false;
  };

  bool Lower(std::uint32_t device, Ticks target);
  void ConsiderMoves(std::uint32_t device, Ticks target, Step* best);
  void ConsiderSwaps(std::uint32_t device, Ticks target, Step* best);
  void ConsiderRows(std::uint32_t device, Ticks target, Step* best);
  void Offer(const Step& step, Step* best) const;
  void ChooseTargets(std::uint32_t device, std::size_t count);
  // Bytes that moving the item to `to` adds; negative when it returns to its first device.
  std::int64_t CostOf(Layout::Item item, std::uint32_t to) const;

  Layout& layout_;
  const OptionSet& options_;
  const Machine& machine_;
  const std::vector<std::int64_t> bytes_;
  const std::vector<Layout::Targets> home_;
  std::vector<std::uint32_t> targets_;
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
