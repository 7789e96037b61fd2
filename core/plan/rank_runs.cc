#include "core/plan/rank_runs.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace embla {

std::string RankRuns(std::span<const Rank> ranks) {
  std::string runs;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < ranks.size() && ToInt(ranks[i + 1]) == ToInt(ranks[i]) + 1) ++i;
    absl::StrAppend(&runs, runs.empty() ? "" : ", ", ToInt(ranks[first]));
    if (i != first) absl::StrAppend(&runs, "-", ToInt(ranks[i]));
  }
  return runs;
}

}  // namespace embla
