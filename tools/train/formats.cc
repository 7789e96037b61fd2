#include "tools/train/formats.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/train/criteo.h"
#include "tools/train/line_reader.h"
#include "tools/train/ratings.h"

namespace embla::train {
namespace {

constexpr std::array<std::pair<Format, std::string_view>, 4> kNames = {{
    {Format::kAuto, "auto"},
    {Format::kCsv, "csv"},
    {Format::kCriteo, "criteo"},
    {Format::kRatings, "ratings"},
}};

struct FirstLines {
  std::string first;
  std::string second;  // Empty: the file has one line.
};

absl::StatusOr<FirstLines> ReadFirstLines(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> lines, LineReader::Open(path));
  FirstLines result;
  std::string_view line;
  EMBLA_ASSIGN_OR_RETURN(const bool has_first, lines->Next(line));
  if (!has_first) return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  result.first = line;
  EMBLA_ASSIGN_OR_RETURN(const bool has_second, lines->Next(line));
  if (has_second) result.second = line;
  return result;
}

bool NamesLabel(std::string_view header, const CsvColumns& columns) {
  std::string storage;
  std::vector<std::string_view> fields;
  const char separator = columns.separator.value_or(GuessSeparator(header, columns.label));
  if (!SplitCsv(header, separator, storage, fields).ok()) return false;
  return FindLabel(std::vector<std::string>(fields.begin(), fields.end()), columns.label).ok();
}

// The character that cuts `line` into as many fields as a Criteo row has; nullopt: none does.
std::optional<char> CriteoSeparator(std::string_view line, std::optional<char> wanted) {
  constexpr auto kSeparated = static_cast<std::ptrdiff_t>(kCriteoIntegers + kCriteoCategories);
  for (const char candidate : kSeparators) {
    if (wanted && candidate != *wanted) continue;
    if (std::ranges::count(line, candidate) == kSeparated) return candidate;
  }
  return std::nullopt;
}

Format Guess(const FirstLines& lines, const CsvColumns& columns) {
  const std::optional<char> wanted = columns.separator;
  if (NamesLabel(lines.first, columns)) return Format::kCsv;
  if (CriteoSeparator(lines.first, wanted)) return Format::kCriteo;
  if (RatingsSeparator(lines.first, wanted) || RatingsSeparator(lines.second, wanted)) {
    return Format::kRatings;
  }
  return Format::kAuto;
}

absl::StatusOr<std::unique_ptr<RecordParser>> MakeRatings(const std::string& path,
                                                          const FirstLines& lines,
                                                          std::optional<char> wanted) {
  if (const auto separator = RatingsSeparator(lines.first, wanted)) {
    return std::make_unique<RatingsParser>(*separator, false);
  }
  if (const auto separator = RatingsSeparator(lines.second, wanted)) {
    return std::make_unique<RatingsParser>(*separator, true);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": neither of the first two lines is a rating"));
}

}  // namespace

std::string_view NameOf(Format format) {
  return std::ranges::find(kNames, format, &decltype(kNames)::value_type::first)->second;
}

absl::StatusOr<OpenedFormat> OpenFormat(const std::string& path, Format wanted,
                                        const CsvColumns& columns, LabelKind label_kind) {
  EMBLA_ASSIGN_OR_RETURN(const FirstLines lines, ReadFirstLines(path));
  OpenedFormat opened;
  opened.format = wanted == Format::kAuto ? Guess(lines, columns) : wanted;
  switch (opened.format) {
    case Format::kAuto:
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": cannot guess the format: line 1 names no column '", columns.label,
                       "' and looks neither like Criteo nor like ratings; use --format, --label or "
                       "--separator"));
    case Format::kCsv: {
      auto parser = CsvParser::FromHeader(lines.first, columns, label_kind);
      if (!parser.ok()) return Annotate(parser.status(), path);
      opened.separator = parser->separator();
      opened.parser = std::make_unique<CsvParser>(std::move(parser).value());
      break;
    }
    case Format::kCriteo:
      opened.separator =
          columns.separator.value_or(CriteoSeparator(lines.first, std::nullopt).value_or('\t'));
      opened.parser = std::make_unique<CriteoParser>(opened.separator);
      break;
    case Format::kRatings: {
      EMBLA_ASSIGN_OR_RETURN(opened.parser, MakeRatings(path, lines, columns.separator));
      break;
    }
  }
  return opened;
}

}  // namespace embla::train
