#include "server/zch/admission.h"

#include <algorithm>

#include "server/zch/draw.h"
#include "server/zch/saturating.h"

namespace embla::zch {

void CandidateCounts::Add(RowId id, std::uint32_t count, std::size_t most) {
  if (const auto it = counts_.find(ToInt(id)); it != counts_.end()) {
    it->second = AddSaturating(it->second, count);
    return;
  }
  while (counts_.size() >= most) Halve();
  counts_.emplace(ToInt(id), count);
}

std::uint32_t CandidateCounts::CountOf(RowId id) const {
  const auto it = counts_.find(ToInt(id));
  return it == counts_.end() ? 0 : it->second;
}

std::vector<Candidate> CandidateCounts::Sorted() const {
  std::vector<Candidate> sorted;
  sorted.reserve(counts_.size());
  for (const auto& [id, count] : counts_) sorted.push_back({id, count});
  std::sort(sorted.begin(), sorted.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return sorted;
}

void CandidateCounts::Halve() {
  for (auto it = counts_.begin(); it != counts_.end();) {
    it->second /= 2;
    if (it->second == 0) {
      counts_.erase(it++);
    } else {
      ++it;
    }
  }
}

bool Draw(RowId id, std::uint64_t step, std::uint64_t seed, double probability) {
  // Exact: 0 never succeeds, 1 always does.
  return static_cast<double>(DrawOf(id, step, seed)) < probability * kDrawEnd;
}

}  // namespace embla::zch
