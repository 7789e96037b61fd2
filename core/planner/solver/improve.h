// Local search: takes load off the most loaded device (or host network) until nothing helps.
//
// Steps, from cheap to dear: move a shard to a lightly loaded device; swap it with a smaller one
// there; move a host-shaped table to another host, or swap two; give a table another option. A step
// is taken only if everything it touches ends below the peak it started from, so the search ends.
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/solver/layout.h"
#include "core/planner/solver/pack.h"

namespace embla::planner {

class Improver {
 public:
  // `layout` is borrowed; every table is placed.
  Improver(Layout& layout, PackRule rule);

  // Until the peak is at most `goal`, nothing helps, or `budget` operations are spent.
  void Run(Ticks goal, std::int64_t budget);

  std::int64_t operations() const { return operations_; }

 private:
  struct Step {
    Ticks worst = 0;  // Highest load afterwards among the devices and hosts it touches.
    Layout::Item move, back;
    std::uint32_t target = 0, back_target = 0;
    bool found = false, swaps = false;
  };

  // An item with what a step looks at, side by side in memory.
  struct Weighed {
    Ticks work = 0, host_work = 0;
    TierBytes bytes{};
    Layout::Item item;
  };

  bool LowerDevice(std::uint32_t device, Ticks peak);
  bool LowerNetwork(std::uint32_t host, Ticks peak);
  // The lightest devices but `from`, by load or by their host's network.
  void ChooseTargets(std::uint32_t from, bool by_network, std::size_t count);
  void ConsiderMoves(std::uint32_t from, Ticks peak, Step* best);
  // For each shard, the `reach` on both sides of the one that would even the devices out.
  void ConsiderSwaps(std::uint32_t from, Ticks peak, std::ptrdiff_t reach, Step* best);
  void ConsiderSwap(const Weighed& a, std::uint32_t from, const Weighed& b, std::uint32_t to,
                    Ticks peak, Step* best);
  bool MoveRows(std::uint32_t host, Ticks peak);
  bool SwapRows(std::uint32_t host, Ticks peak);
  // Whether a column block of `in` fits every device of the host once one of `out` has left.
  bool RowsFit(std::uint32_t host, const Option& in, const Option& out, Ticks* worst) const;
  bool MoveHostTables(std::uint32_t from, Ticks peak);
  bool ChangeOption(std::uint32_t device, bool by_network, Ticks peak);
  bool Replace(std::uint32_t table, std::uint32_t option, Ticks peak);
  Ticks WorstTouched(std::uint32_t table) const;
  void Take(const Step& step);
  // Lets tables take a cheaper option where they are, if the free memory there allows; the most
  // work saved per byte first.
  bool UseFreeMemory();
  // Gives the table another option of the same shape where it is; false if it does not fit.
  bool Exchange(std::uint32_t table, std::uint32_t option);
  template <typename Visit>
  void ForEachDevice(std::uint32_t table, const Visit& visit);
  const std::vector<Weighed>& SortedItems(std::uint32_t device);

  Layout& layout_;
  const OptionSet& options_;
  const Machine& machine_;
  Packer packer_;
  std::vector<std::uint32_t> targets_;        // Lightest devices, lightest first.
  std::vector<std::vector<Weighed>> sorted_;  // Items of a device by work, when fresh.
  std::vector<std::uint8_t> fresh_;
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
