// How many series a process shows.
#pragma once

#include <cstddef>
#include <string>

#include "core/metrics/metrics.h"

namespace embla::testing {

// Lines of the text that are not about a whole family.
inline std::size_t SeriesCount(const Metrics& metrics) {
  const std::string text = metrics.Text();
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    if (text[at] != '#') ++count;
  }
  return count;
}

}  // namespace embla::testing
