// Admission of ids: counts of ids that wait for a slot, and the draw by probability.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/ids.h"

namespace embla::zch {

struct Candidate {
  std::int64_t id = 0;
  std::uint32_t count = 0;  // Never 0.

  bool operator==(const Candidate&) const = default;
};

// How often the waiting ids of one bucket were seen. Exact while they are at most `most`; then all
// counts are halved and zeros forgotten until one more fits. The content is a function of the
// sequence of calls alone. Not thread safe.
class CandidateCounts {
 public:
  // Requires: count >= 1, most >= 1.
  void Add(RowId id, std::uint32_t count, std::size_t most);
  void Forget(RowId id) { counts_.erase(ToInt(id)); }

  // 0 when unknown.
  std::uint32_t CountOf(RowId id) const;
  std::size_t size() const { return counts_.size(); }
  // By ascending id.
  std::vector<Candidate> Sorted() const;

 private:
  void Halve();

  absl::flat_hash_map<std::int64_t, std::uint32_t> counts_;
};

// Whether the draw of `id` at `step` succeeds: the same in every process.
bool Draw(RowId id, std::uint64_t step, std::uint64_t seed, double probability);

}  // namespace embla::zch
