#include "tools/embla/text_table.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace embla::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNoteIndent = 4;
// No column is made narrower to fit.
constexpr std::size_t kColumnMin = 12;

// `text` in pieces of at most `columns`, broken at blanks where it has some.
std::vector<std::string> Wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::size_t end = std::min(columns, text.size());
    const std::size_t blank = text.rfind(' ', end);
    if (end < text.size() && blank != std::string_view::npos && blank > 0) end = blank;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return lines;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    if (right_.back()) title.erase(0, 1);
  }
  lines_.push_back(std::move(titles));
  notes_.emplace_back();
}

void TextTable::Add(std::vector<std::string> cells) {
  EMBLA_CHECK(cells.size() == right_.size());
  lines_.push_back(std::move(cells));
  notes_.emplace_back();
}

void TextTable::AddNote(std::string text) { notes_.back() = std::move(text); }

std::vector<std::size_t> TextTable::Widths(std::size_t columns) const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& line : lines_) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::size_t all = std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  while (all > columns) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kColumnMin) break;
    --*widest;
    --all;
  }
  return widths;
}

std::string TextTable::Render(std::string_view indent, std::size_t columns) const {
  const std::vector<std::size_t> widths = Widths(columns - indent.size());
  std::string text;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      cells.push_back(Wrapped(lines_[i][c], widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t row = 0; row < height; ++row) {
      std::string rendered(indent);
      for (std::size_t c = 0; c < widths.size(); ++c) {
        const std::string cell = row < cells[c].size() ? cells[c][row] : "";
        const std::string padding(widths[c] - cell.size(), ' ');
        if (c > 0) rendered.append(kGap, ' ');
        rendered += right_[c] ? padding + cell : cell + padding;
      }
      rendered.erase(rendered.find_last_not_of(' ') + 1);
      text += rendered + "\n";
    }
    const std::string note_indent = std::string(indent) + std::string(kNoteIndent, ' ');
    for (const std::string& line : Wrapped(notes_[i], columns - note_indent.size())) {
      absl::StrAppend(&text, note_indent, line, "\n");
    }
  }
  return text;
}

std::string Shortened(const std::string& name, std::size_t columns) {
  return name.size() <= columns ? name : name.substr(0, columns - 2) + "..";
}

std::string FormatCount(std::int64_t count) {
  std::string digits = absl::StrCat(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace embla::cli
