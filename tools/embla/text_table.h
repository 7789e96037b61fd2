// Columns of text for people: aligned, two spaces apart, in at most 100 columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_text.h"  // FormatBytes, of the same cells.

namespace embla::cli {

class TextTable {
 public:
  // Columns whose title starts with '>' are aligned to the right; the '>' is not printed.
  explicit TextTable(std::vector<std::string> titles);

  // Requires: one cell per title.
  void Add(std::vector<std::string> cells);

  // Text below the line added last, across all columns: broken at blanks and four columns further
  // in than the table.
  void AddNote(std::string text);

  // Width of text for people, the indent of Render included.
  static constexpr std::size_t kColumnsMax = 100;

  // Every line starts with `indent` and ends with a line break, without trailing spaces. Where the
  // cells would need more than `columns`, those of the widest columns go on in lines below.
  std::string Render(std::string_view indent = "", std::size_t columns = kColumnsMax) const;

 private:
  // Returns the width of each column, so that a line has at most `columns`, if that is possible at
  // all.
  std::vector<std::size_t> Widths(std::size_t columns) const;

  std::vector<bool> right_;
  std::vector<std::vector<std::string>> lines_;  // [0] has the titles.
  std::vector<std::string> notes_;               // By line; most are empty.
};

// `name`, or what fits of it into `columns`: "user_history_..".
std::string Shortened(const std::string& name, std::size_t columns);

// 1234567 as "1,234,567".
std::string FormatCount(std::int64_t count);

}  // namespace embla::cli
