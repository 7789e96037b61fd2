// Test support: what lines of a text log say.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/text.h"

namespace embla::testing {

// Returns the keys of each line that has `what`, with their values; a value in quotes ends at its
// first blank.
inline std::vector<std::map<std::string, std::string>> LinesWith(const std::string& log,
                                                                 std::string_view what) {
  std::vector<std::map<std::string, std::string>> lines;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (line.find(ToAbsl(what)) == absl::string_view::npos) continue;
    lines.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      lines.back().insert(pair);
    }
  }
  return lines;
}

}  // namespace embla::testing
