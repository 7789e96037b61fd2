#include "tools/train/formats.h"

#include <algorithm>
#include <array>
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

bool NamesLabel(std::string_view header, const std::string& label) {
  std::string storage;
  std::vector<std::string_view> fields;
  return SplitCsv(header, GuessSeparator(header), storage, fields).ok() &&
         std::ranges::find(fields, label) != fields.end();
}

Format Guess(const FirstLines& lines, const std::string& label) {
  if (NamesLabel(lines.first, label)) return Format::kCsv;
  constexpr auto kTabs = static_cast<std::ptrdiff_t>(kCriteoIntegers + kCriteoCategories);
  if (std::ranges::count(lines.first, '\t') == kTabs) return Format::kCriteo;
  if (RatingsSeparator(lines.first) || RatingsSeparator(lines.second)) return Format::kRatings;
  return Format::kAuto;
}

absl::StatusOr<std::unique_ptr<RecordParser>> MakeRatings(const std::string& path,
                                                          const FirstLines& lines) {
  if (const auto separator = RatingsSeparator(lines.first)) {
    return std::make_unique<RatingsParser>(*separator, false);
  }
  if (const auto separator = RatingsSeparator(lines.second)) {
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
  opened.format = wanted == Format::kAuto ? Guess(lines, columns.label) : wanted;
  switch (opened.format) {
    case Format::kAuto:
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": cannot guess the format: line 1 names no column '", columns.label,
          "' and looks neither like Criteo nor like ratings; use --format or --label"));
    case Format::kCsv: {
      auto parser = CsvParser::FromHeader(lines.first, columns, label_kind);
      if (!parser.ok()) return Annotate(parser.status(), path);
      opened.parser = std::make_unique<CsvParser>(std::move(parser).value());
      break;
    }
    case Format::kCriteo:
      opened.parser = std::make_unique<CriteoParser>();
      break;
    case Format::kRatings: {
      EMBLA_ASSIGN_OR_RETURN(opened.parser, MakeRatings(path, lines));
      break;
    }
  }
  return opened;
}

}  // namespace embla::train
