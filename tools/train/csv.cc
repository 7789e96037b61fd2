#include "tools/train/csv.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::train {
namespace {

// Position after the quoted field that starts at `begin`, or npos when it is not closed. Appends
// the field's text to `value` unless that is null.
std::size_t EndOfQuoted(std::string_view line, std::size_t begin, std::string* value) {
  for (std::size_t i = begin + 1; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (i + 1 == line.size() || line[i + 1] != '"') return i + 1;
      ++i;
    }
    if (value != nullptr) value->push_back(line[i]);
  }
  return std::string_view::npos;
}

absl::Status CheckNames(const std::vector<std::string>& names) {
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("the header has two columns '", name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

char GuessSeparator(std::string_view header) {
  char best = ',';
  for (const char candidate : {';', '\t'}) {
    if (std::ranges::count(header, candidate) > std::ranges::count(header, best)) best = candidate;
  }
  return best;
}

absl::Status SplitCsv(std::string_view line, char separator, std::string& storage,
                      std::vector<std::string_view>& fields) {
  fields.clear();
  storage.clear();
  storage.reserve(line.size());  // Never grows: the views below stay valid.
  std::size_t begin = 0;
  while (true) {
    std::size_t end = 0;
    if (begin < line.size() && line[begin] == '"') {
      const std::size_t stored = storage.size();
      end = EndOfQuoted(line, begin, &storage);
      if (end == std::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("the quoted field ", fields.size() + 1, " is not closed"));
      }
      if (end < line.size() && line[end] != separator) {
        return absl::InvalidArgumentError(
            absl::StrCat("text follows the closing quote of field ", fields.size() + 1));
      }
      fields.push_back(std::string_view(storage).substr(stored));
    } else {
      end = std::min(line.find(separator, begin), line.size());
      fields.push_back(line.substr(begin, end - begin));
    }
    if (end == line.size()) return absl::OkStatus();
    begin = end + 1;
  }
}

absl::StatusOr<CsvParser> CsvParser::FromHeader(std::string_view header, const CsvColumns& columns,
                                                LabelKind label_kind) {
  CsvParser parser;
  parser.separator_ = GuessSeparator(header);
  parser.label_kind_ = label_kind;
  EMBLA_RETURN_IF_ERROR(SplitCsv(header, parser.separator_, parser.storage_, parser.fields_));
  const std::vector<std::string> names(parser.fields_.begin(), parser.fields_.end());
  EMBLA_RETURN_IF_ERROR(CheckNames(names));
  for (const std::string& dropped : columns.dropped) {
    if (std::ranges::find(names, dropped) == names.end()) {
      return absl::NotFoundError(absl::StrCat("no column '", dropped, "' to drop; the header has ",
                                              absl::StrJoin(names, ", ")));
    }
  }
  const auto label = std::ranges::find(names, columns.label);
  if (label == names.end()) {
    return absl::NotFoundError(absl::StrCat("no label column '", columns.label,
                                            "'; name it with --label; the header has ",
                                            absl::StrJoin(names, ", ")));
  }
  parser.label_position_ = label - names.begin();
  parser.field_count_ = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == parser.label_position_) continue;
    if (std::ranges::find(columns.dropped, names[i]) != columns.dropped.end()) continue;
    parser.positions_.push_back(i);
    parser.columns_.push_back(names[i]);
  }
  if (parser.columns_.empty()) {
    return absl::InvalidArgumentError("the header has no column beside the label");
  }
  return parser;
}

bool CsvParser::IsWhole(std::string_view text) const {
  std::size_t begin = 0;
  while (true) {
    std::size_t end = begin;
    if (begin < text.size() && text[begin] == '"') {
      end = EndOfQuoted(text, begin, nullptr);
      if (end == std::string_view::npos) return false;
    }
    begin = text.find(separator_, end);
    if (begin == std::string_view::npos) return true;
    ++begin;
  }
}

absl::Status CsvParser::Parse(std::string_view text, Record& record) {
  EMBLA_RETURN_IF_ERROR(SplitCsv(text, separator_, storage_, fields_));
  if (fields_.size() != field_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat(fields_.size(), " fields, the header has ", field_count_));
  }
  EMBLA_ASSIGN_OR_RETURN(record.label, ParseLabel(fields_[label_position_], label_kind_));
  record.cells.clear();
  for (const std::size_t position : positions_) record.cells.push_back(fields_[position]);
  return absl::OkStatus();
}

}  // namespace embla::train
