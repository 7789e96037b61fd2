// Numbers the different ids of a batch in the order in which they come: 0, 1, 2, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace embla::train {

// Small numbers, as rows of a table are, are found in an array; other ids in a hash map, which
// takes several times as long. Thread safety: one thread at a time.
class SlotFinder {
 public:
  static constexpr std::size_t kArrayRowsMax = std::size_t{1} << 22;  // 8 bytes each.

  // Forgets all ids. Most of those that come next are below `rows`; 0: they may be any.
  void Begin(std::size_t rows);

  // The slot of `id`; one that has not come since Begin gets `next`.
  std::uint32_t Find(std::int64_t id, std::uint32_t next) {
    const auto number = static_cast<std::size_t>(id);
    if (number >= rows_) return map_.try_emplace(id, next).first->second;
    Entry& entry = array_[number];
    if (entry.round != round_) entry = {round_, next};
    return entry.slot;
  }

 private:
  struct Entry {
    std::uint32_t round = 0;
    std::uint32_t slot = 0;
  };

  std::size_t rows_ = 0;     // Ids below are in the array.
  std::uint32_t round_ = 0;  // Entries of other rounds count as empty.
  std::vector<Entry> array_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> map_;
};

}  // namespace embla::train
