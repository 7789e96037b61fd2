#include "tools/train/ratings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::train {
namespace {

constexpr std::size_t kFieldsMin = 3;
constexpr std::size_t kFieldsMax = 4;
constexpr std::size_t kRatingPosition = 2;

// At most one field more than a rating may have: enough to see that there are too many.
void SplitBy(std::string_view text, std::string_view separator,
             std::vector<std::string_view>& out) {
  out.clear();
  while (out.size() <= kFieldsMax) {
    const std::size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + separator.size());
  }
}

bool HasRatingsShape(const std::vector<std::string_view>& fields) {
  return fields.size() >= kFieldsMin && fields.size() <= kFieldsMax;
}

}  // namespace

std::optional<std::string> RatingsSeparator(std::string_view line, std::optional<char> wanted) {
  std::vector<std::string> candidates = {"\t", "::", ",", ";", "|", " "};
  if (wanted) candidates = {std::string(1, *wanted)};
  std::vector<std::string_view> fields;
  for (const std::string& separator : candidates) {
    SplitBy(line, separator, fields);
    if (HasRatingsShape(fields) && ParseLabel(fields[kRatingPosition], LabelKind::kNumber).ok()) {
      return separator;
    }
  }
  return std::nullopt;
}

RatingsParser::RatingsParser(std::string separator, bool has_header)
    : separator_(std::move(separator)), has_header_(has_header) {}

absl::Status RatingsParser::Parse(std::string_view text, Record& record) {
  SplitBy(text, separator_, fields_);
  if (!HasRatingsShape(fields_)) {
    return absl::InvalidArgumentError(absl::StrCat(fields_.size(),
                                                   " fields, a rating has 3 or 4 separated by '",
                                                   separator_ == "\t" ? "\\t" : separator_, "'"));
  }
  EMBLA_ASSIGN_OR_RETURN(record.label, ParseLabel(fields_[kRatingPosition], LabelKind::kNumber));
  if (fields_[0].empty() || fields_[1].empty()) {
    return absl::InvalidArgumentError("user or item is missing");
  }
  record.cells.assign(fields_.begin(), fields_.begin() + kRatingPosition);
  return absl::OkStatus();
}

}  // namespace embla::train
