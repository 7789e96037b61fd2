#include "tools/train/criteo.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::train {
namespace {

constexpr std::size_t kHexDigitsMax = 16;

bool IsInteger(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

bool IsHex(std::string_view text) {
  return text.size() <= kHexDigitsMax &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c); });
}

}  // namespace

CriteoParser::CriteoParser(char separator) : separator_(separator) {
  for (std::size_t i = 1; i <= kCriteoIntegers; ++i) columns_.push_back(absl::StrCat("I", i));
  for (std::size_t i = 1; i <= kCriteoCategories; ++i) columns_.push_back(absl::StrCat("C", i));
}

absl::Status CriteoParser::Parse(std::string_view text, Record& record) {
  record.cells.clear();
  std::size_t begin = 0;
  while (begin <= text.size() && record.cells.size() <= columns_.size() + 1) {
    const std::size_t end = std::min(text.find(separator_, begin), text.size());
    record.cells.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (record.cells.size() != columns_.size() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(record.cells.size(), record.cells.size() > columns_.size() + 1 ? "+" : "",
                     " fields, a Criteo row has ", columns_.size() + 1));
  }
  EMBLA_ASSIGN_OR_RETURN(record.label, ParseLabel(record.cells.front(), LabelKind::kBinary));
  record.cells.erase(record.cells.begin());
  for (std::size_t i = 0; i < record.cells.size(); ++i) {
    const std::string_view cell = record.cells[i];
    const bool valid = cell.empty() || (i < kCriteoIntegers ? IsInteger(cell) : IsHex(cell));
    if (!valid) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", columns_[i], " '", ToAbsl(cell.substr(0, 32)), "' is not ",
                       i < kCriteoIntegers ? "an integer" : "hexadecimal"));
    }
  }
  return absl::OkStatus();
}

}  // namespace embla::train
