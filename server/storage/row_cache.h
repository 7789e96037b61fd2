// Maps rows of a large store to lines of a small, fast one: bookkeeping only, no rows.
//
// A batch gets lines for all its rows at once; rows of the batch itself are
// never evicted for others of it. Evictions depend on the batches alone: ticks count batches, and
// of equals the lowest line is evicted first, so every run evicts the same rows.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace embla {

class RowCache {
 public:
  enum class Policy : std::uint8_t {
    kLru = 1,  // Evicts the row that was used longest ago.
    kLfu = 2,  // The row that fewest batches have used since it came; of these,
               // the oldest.
  };

  struct Statistics {
    std::uint64_t hits = 0;         // Rows of batches that had lines, each once per batch,
    std::uint64_t misses = 0;       // and that had none.
    std::uint64_t evictions = 0;    // Rows that lost their lines to others,
    std::uint64_t write_backs = 0;  // and had changed.
  };

  // Rows and their lines.
  struct Pairs {
    std::vector<std::uint32_t> slots;
    std::vector<std::uint32_t> lines;

    bool empty() const { return slots.empty(); }
    void Clear();
    void Add(std::uint32_t slot, std::uint32_t line);
  };

  // Steps to take before a batch can use its lines.
  struct Placement {
    std::vector<std::uint32_t> lines;  // Line of each position of the batch; kNoSlot stays.
    Pairs write_backs;                 // First: rows that have changed and lose these lines.
    Pairs fills;                       // Then: rows that come to these lines.
  };

  // Requires: lines >= 1.
  RowCache(std::uint32_t lines, Policy policy);

  std::uint32_t lines() const { return static_cast<std::uint32_t>(lines_.size()); }
  const Statistics& statistics() const { return statistics_; }

  // Gives lines to all rows of a batch. `changes`: they are about to change
  // there. Requires: at most lines() different slots, kNoSlot aside.
  void Place(std::span<const std::uint32_t> slots, bool changes, Placement& placement);

  // The rows of `slots` that have changed since they came, which count as
  // unchanged from now on.
  void TakeChanged(std::span<const std::uint32_t> slots, Pairs& changed);
  // Forgets the rows of `slots`, changed or not.
  void Drop(std::span<const std::uint32_t> slots);

 private:
  struct Line {
    std::uint32_t slot = 0;
    std::uint64_t uses = 0;
    std::uint64_t tick = 0;  // Tick of the last use.
    bool changed = false;
  };
  // Lines in the order in which they are evicted.
  using Order = std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>>;

  Order::value_type KeyOf(std::uint32_t line) const;
  void Touch(std::uint32_t line, bool changes);
  // The line of a row that is not there.
  std::uint32_t MakeRoom(Placement& placement);

  const Policy policy_;
  std::vector<Line> lines_;
  std::vector<std::uint32_t> free_;  // Lines without a row: a heap, the lowest first.
  Order order_;                      // Lines with a row.
  absl::flat_hash_map<std::uint32_t, std::uint32_t> line_of_;  // By slot.
  std::uint64_t tick_ = 0;
  Statistics statistics_;
};

}  // namespace embla
