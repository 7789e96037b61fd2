// Columns of text for people: aligned, two spaces apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace embla::cli {

class TextTable {
 public:
  // Columns whose title starts with '>' are aligned to the right; the '>' is not printed.
  explicit TextTable(std::vector<std::string> titles);

  // Requires: one cell per title.
  void Add(std::vector<std::string> cells);

  // Every line starts with `indent` and ends with a line break, without trailing spaces.
  std::string Render(std::string_view indent = "") const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> lines_;  // [0] has the titles.
};

// 1234567 as "1,234,567".
std::string FormatCount(std::int64_t count);
// With three significant digits and a binary unit: "0 B", "24.2 GiB".
std::string FormatBytes(std::int64_t bytes);

}  // namespace embla::cli
