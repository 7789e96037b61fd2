#include "core/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace embla {
namespace {

// The optimal string alignment distance, row by row: two rows back are needed for swaps.
std::size_t Changes(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last, last, row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[to.size()];
}

}  // namespace

std::string NearestName(std::string_view word, std::span<const std::string> names) {
  std::size_t fewest = (word.size() + 2) / 3 + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const std::size_t changes = Changes(word, name);
    if (changes >= fewest) continue;
    fewest = changes;
    nearest = name;
  }
  return nearest;
}

}  // namespace embla
