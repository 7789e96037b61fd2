#include "tools/embla/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"

namespace embla::cli {

TextTable::TextTable(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    if (right_.back()) title.erase(0, 1);
  }
  lines_.push_back(std::move(titles));
}

void TextTable::Add(std::vector<std::string> cells) {
  EMBLA_CHECK(cells.size() == right_.size());
  lines_.push_back(std::move(cells));
}

std::string TextTable::Render(std::string_view indent) const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& line : lines_) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const auto& line : lines_) {
    std::string rendered(indent);
    for (std::size_t c = 0; c < line.size(); ++c) {
      const std::string padding(widths[c] - line[c].size(), ' ');
      if (c > 0) rendered += "  ";
      rendered += right_[c] ? padding + line[c] : line[c] + padding;
    }
    rendered.erase(rendered.find_last_not_of(' ') + 1);
    text += rendered + "\n";
  }
  return text;
}

std::string FormatCount(std::int64_t count) {
  std::string digits = absl::StrCat(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string FormatBytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.5 would print as "1024".
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, value, kUnits[unit]);
}

}  // namespace embla::cli
