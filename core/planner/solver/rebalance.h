// Evens out many devices at once: the most loaded is paired with the least loaded, the second with
// the second, and so on; each pair pools its shards and splits them anew, load and memory both.
//
// With n shards on a pair a greedy split of the largest first leaves a difference of about the
// smallest shard, so a few rounds of O(shards log shards) do what single swaps need thousands of
// steps for, when memories are full. A split is taken only if the pair's higher load falls.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/planner/solver/layout.h"

namespace embla::planner {

class Rebalancer {
 public:
  // `layout` is borrowed; every table is placed. `target` is the load to aim at.
  Rebalancer(Layout& layout, Ticks target);

  // Until the peak is at most `goal`, a round gains little, or `budget` operations are spent.
  void Run(Ticks goal, std::int64_t budget);

  std::int64_t operations() const { return operations_; }

 private:
  // A shard that may lie on both devices of the pair.
  struct Loose {
    std::int64_t size = 0;  // The larger of its two ratios.
    std::int64_t time = 0, space = 0;
    Layout::Item item;
    bool on_second = false;
  };
  bool Split(std::uint32_t first, std::uint32_t second);
  void Collect(std::uint32_t device, std::uint32_t other);
  void Assign(std::array<std::uint32_t, 2> devices, std::int64_t space_weight);
  bool Take(std::uint32_t first, std::uint32_t second);

  Layout& layout_;
  const Machine& machine_;
  const std::int64_t per_target_;
  std::vector<Loose> loose_;
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
