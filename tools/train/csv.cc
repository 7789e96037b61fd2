#include "tools/train/csv.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
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

// Position of the first character from `begin` on that is no blank around a field.
std::size_t SkipBlanks(std::string_view line, std::size_t begin, char separator) {
  while (begin < line.size() && (line[begin] == ' ' || line[begin] == '\t') &&
         (line[begin] != separator || separator == ' ')) {
    ++begin;
  }
  return begin;
}

std::string_view WithoutBlanksAtEnd(std::string_view field, char separator) {
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t') &&
         field.back() != separator) {
    field.remove_suffix(1);
  }
  return field;
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

char GuessSeparator(std::string_view header, std::string_view label) {
  std::string storage;
  std::vector<std::string_view> fields;
  std::optional<char> best;
  std::size_t most = 0;
  for (const char candidate : kSeparators) {
    if (!SplitCsv(header, candidate, storage, fields).ok() || fields.size() <= most) continue;
    const std::vector<std::string> names(fields.begin(), fields.end());
    if (!FindLabel(names, label).ok()) continue;
    best = candidate;
    most = fields.size();
  }
  if (best) return *best;
  return *std::ranges::max_element(kSeparators, {}, [&](char candidate) {
    return candidate == ' ' ? 0 : std::ranges::count(header, candidate);
  });
}

std::string SeparatorName(char separator) {
  if (separator == '\t') return "tab";
  if (separator == ' ') return "blank";
  return absl::StrCat("'", absl::CHexEscape(std::string(1, separator)), "'");
}

absl::StatusOr<std::size_t> FindLabel(std::span<const std::string> names, std::string_view label) {
  std::vector<std::size_t> alike;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == label) return i;
    if (absl::EqualsIgnoreCase(names[i], ToAbsl(label))) alike.push_back(i);
  }
  if (alike.size() == 1) return alike.front();
  const std::string has = absl::StrCat("; the header has ", absl::StrJoin(names, ", "));
  if (alike.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no label column '", ToAbsl(label), "'; name it with --label", has));
  }
  return absl::InvalidArgumentError(absl::StrCat("several columns are called '", ToAbsl(label),
                                                 "' in other letters; name one with --label", has));
}

absl::Status SplitCsv(std::string_view line, char separator, std::string& storage,
                      std::vector<std::string_view>& fields) {
  fields.clear();
  storage.clear();
  storage.reserve(line.size());  // Never grows: the views below stay valid.
  std::size_t begin = SkipBlanks(line, 0, separator);
  while (true) {
    std::size_t end = 0;
    if (begin < line.size() && line[begin] == '"') {
      const std::size_t stored = storage.size();
      end = EndOfQuoted(line, begin, &storage);
      if (end == std::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("the quoted field ", fields.size() + 1, " is not closed"));
      }
      fields.push_back(std::string_view(storage).substr(stored));
      if (separator != ' ') end = SkipBlanks(line, end, separator);
      if (end < line.size() && line[end] != separator) {
        return absl::InvalidArgumentError(
            absl::StrCat("text follows the closing quote of field ", fields.size()));
      }
    } else {
      end = std::min(line.find(separator, begin), line.size());
      fields.push_back(WithoutBlanksAtEnd(line.substr(begin, end - begin), separator));
    }
    if (separator == ' ' && SkipBlanks(line, end, separator) == line.size()) end = line.size();
    if (end == line.size()) return absl::OkStatus();
    begin = SkipBlanks(line, end + 1, separator);
  }
}

absl::StatusOr<CsvParser> CsvParser::FromHeader(std::string_view header, const CsvColumns& columns,
                                                LabelKind label_kind) {
  CsvParser parser;
  parser.separator_ = columns.separator.value_or(GuessSeparator(header, columns.label));
  parser.label_kind_ = label_kind;
  EMBLA_RETURN_IF_ERROR(SplitCsv(header, parser.separator_, parser.storage_, parser.fields_));
  const std::vector<std::string> names(parser.fields_.begin(), parser.fields_.end());
  EMBLA_RETURN_IF_ERROR(CheckNames(names));
  EMBLA_RETURN_IF_ERROR(parser.ChooseColumns(names, columns));
  return parser;
}

absl::Status CsvParser::ChooseColumns(const std::vector<std::string>& names,
                                      const CsvColumns& columns) {
  for (const std::string& dropped : columns.dropped) {
    if (std::ranges::count(names, dropped) == 0) {
      return absl::NotFoundError(absl::StrCat("no column '", dropped, "' to drop; the header has ",
                                              absl::StrJoin(names, ", ")));
    }
  }
  EMBLA_ASSIGN_OR_RETURN(label_position_, FindLabel(names, columns.label));
  field_count_ = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == label_position_) continue;
    if (std::ranges::count(columns.dropped, names[i]) > 0 ||
        std::ranges::count(columns.ignored, names[i]) > 0) {
      continue;
    }
    positions_.push_back(i);
    columns_.push_back(names[i]);
  }
  if (!columns_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("the header has no column beside the label");
}

bool CsvParser::IsWhole(std::string_view text) const {
  std::size_t begin = SkipBlanks(text, 0, separator_);
  while (true) {
    std::size_t end = begin;
    if (begin < text.size() && text[begin] == '"') {
      end = EndOfQuoted(text, begin, nullptr);
      if (end == std::string_view::npos) return false;
    }
    begin = text.find(separator_, end);
    if (begin == std::string_view::npos) return true;
    begin = SkipBlanks(text, begin + 1, separator_);
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
