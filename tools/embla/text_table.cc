#include "tools/embla/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace embla::cli {

namespace {

// `text` in lines of at most TextTable::kNoteColumns, each behind `indent`.
std::string Wrapped(std::string_view text, const std::string& indent) {
  std::string wrapped;
  while (!text.empty()) {
    std::size_t end = TextTable::kNoteColumns - indent.size();
    if (text.size() <= end) {
      end = text.size();
    } else if (const std::size_t blank = text.rfind(' ', end); blank != std::string_view::npos) {
      end = blank;
    }
    wrapped += indent + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return wrapped;
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

std::string TextTable::Render(std::string_view indent) const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& line : lines_) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const auto& line = lines_[i];
    std::string rendered(indent);
    for (std::size_t c = 0; c < line.size(); ++c) {
      const std::string padding(widths[c] - line[c].size(), ' ');
      if (c > 0) rendered += "  ";
      rendered += right_[c] ? padding + line[c] : line[c] + padding;
    }
    rendered.erase(rendered.find_last_not_of(' ') + 1);
    text += rendered + "\n" + Wrapped(notes_[i], std::string(indent) + "    ");
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
