// Numbers the different ids of a batch as they come, without sorting them.
//
// The client's twin (client/route/distinct_ids.h) keeps no memory, and does not look for ids that
// ascend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace embla {

// Reuse one object for many batches: it keeps its memory.
class IdNumbering {
 public:
  // Requires: ids.size() < 2^31.
  void Number(std::span<const std::int64_t> ids);

  // Each id once, in the order in which they came first.
  std::span<const std::int64_t> ids() const { return distinct_; }
  // By position in the batch: where its id is in ids().
  std::span<const std::uint32_t> number_of() const { return number_of_; }

 private:
  void NumberAscending(std::span<const std::int64_t> ids);
  void NumberByHash(std::span<const std::int64_t> ids);

  std::vector<std::int64_t> distinct_;
  std::vector<std::uint32_t> number_of_;
  std::vector<std::uint32_t> places_;  // Hash table: 1 + an id's number, or 0.
};

}  // namespace embla
