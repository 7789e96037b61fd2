#include "tools/train/file_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/train/criteo.h"
#include "tools/train/random.h"

namespace embla::train {
namespace {

std::shared_ptr<const Encoding> MakeEncoding(const std::vector<std::string>& names,
                                             std::vector<std::string> left_out,
                                             std::vector<ColumnEncoder> encoders) {
  auto encoding = std::make_shared<Encoding>();
  encoding->left_out = std::move(left_out);
  encoding->encoders = std::move(encoders);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ColumnEncoder& encoder = encoding->encoders[i];
    encoding->columns.push_back({names[i], encoder.rows(), encoder.Describe()});
  }
  return encoding;
}

// Needs no look at the data, so that click logs of any size start at once.
std::shared_ptr<const Encoding> RawCriteoEncoding(const std::vector<std::string>& names) {
  std::vector<ColumnEncoder> encoders;
  for (std::size_t i = 0; i < names.size(); ++i) {
    encoders.push_back(i < kCriteoIntegers ? ColumnEncoder::RawBucketed(i) : ColumnEncoder::Raw(i));
  }
  return MakeEncoding(names, {}, std::move(encoders));
}

std::shared_ptr<const Encoding> RawRatingsEncoding(const std::vector<std::string>& names) {
  std::vector<ColumnEncoder> encoders;
  for (std::size_t i = 0; i < names.size(); ++i) encoders.push_back(ColumnEncoder::RawNumbers(i));
  return MakeEncoding(names, {}, std::move(encoders));
}

}  // namespace

bool Split::Takes(std::uint64_t position) const {
  if (part == Part::kAll) return true;
  const bool holdout = Random(SplitMix64(seed) ^ position).Uniform() < holdout_share;
  return holdout == (part == Part::kHoldout);
}

FileSource::FileSource(FileOptions options, OpenedFormat opened, BadRows& bad_rows)
    : options_(std::move(options)), opened_(std::move(opened)), bad_rows_(bad_rows) {}

absl::StatusOr<std::unique_ptr<FileSource>> FileSource::Learn(const FileOptions& options,
                                                              BadRows& bad_rows) {
  EMBLA_ASSIGN_OR_RETURN(OpenedFormat opened,
                         OpenFormat(options.path, options.format, options.csv, options.label_kind));
  std::unique_ptr<FileSource> source(new FileSource(options, std::move(opened), bad_rows));
  const std::vector<std::string>& names = source->opened_.parser->columns();
  if (source->format() == Format::kCriteo && options.rule.raw_ids) {
    source->encoding_ = RawCriteoEncoding(names);
  } else if (source->format() == Format::kRatings && options.rule.raw_ids) {
    source->encoding_ = RawRatingsEncoding(names);
  } else {
    EMBLA_RETURN_IF_ERROR(source->LearnEncoding());
  }
  EMBLA_RETURN_IF_ERROR(source->Restart());
  return source;
}

absl::StatusOr<std::unique_ptr<FileSource>> FileSource::Open(
    FileOptions options, std::shared_ptr<const Encoding> encoding, BadRows& bad_rows) {
  options.csv.ignored = encoding->left_out;
  EMBLA_ASSIGN_OR_RETURN(OpenedFormat opened,
                         OpenFormat(options.path, options.format, options.csv, options.label_kind));
  std::unique_ptr<FileSource> source(new FileSource(options, std::move(opened), bad_rows));
  source->encoding_ = std::move(encoding);
  EMBLA_RETURN_IF_ERROR(source->CheckColumns());
  EMBLA_RETURN_IF_ERROR(source->Restart());
  return source;
}

bool FileSource::IsName(std::size_t column) const {
  if (format() == Format::kRatings) return true;  // User and item.
  if (format() == Format::kCriteo) return column >= kCriteoIntegers;
  return std::ranges::count(options_.keep_text, opened_.parser->columns()[column]) > 0;
}

absl::StatusOr<std::vector<ColumnProfile>> FileSource::ProfileColumns() {
  const std::size_t columns = opened_.parser->columns().size();
  std::vector<ColumnProfile> profiles;
  for (std::size_t i = 0; i < columns; ++i) profiles.emplace_back(options_.rule, IsName(i), i);
  EMBLA_RETURN_IF_ERROR(Restart());
  Record record;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const bool more, Next(record));
    if (!more) return profiles;
    for (std::size_t i = 0; i < columns; ++i) profiles[i].Add(record.cells[i]);
  }
}

absl::Status FileSource::LearnEncoding() {
  const std::vector<std::string> names = opened_.parser->columns();
  for (const std::string& name : options_.keep_text) {
    if (std::ranges::count(names, name) == 0) {
      return absl::NotFoundError(absl::StrCat(options_.path, ": no column '", name, "'; it has ",
                                              absl::StrJoin(names, ", ")));
    }
  }
  EMBLA_ASSIGN_OR_RETURN(std::vector<ColumnProfile> profiles, ProfileColumns());
  std::vector<std::string> kept;
  std::vector<std::string> left_out;
  std::vector<ColumnEncoder> encoders;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    if (format() == Format::kCsv && !IsName(i) && profiles[i].IsRecordId()) {
      left_out.push_back(names[i]);
      continue;
    }
    kept.push_back(names[i]);
    encoders.push_back(profiles[i].Choose());
  }
  if (kept.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.path,
                     ": every column has another value in every record, so there is "
                     "nothing to learn from; --categorical keeps such a column"));
  }
  encoding_ = MakeEncoding(kept, std::move(left_out), std::move(encoders));
  return LeaveOut(encoding_->left_out);
}

// Opens the file anew without these columns.
absl::Status FileSource::LeaveOut(const std::vector<std::string>& columns) {
  if (columns.empty()) return absl::OkStatus();
  CsvColumns csv = options_.csv;
  csv.ignored = columns;
  EMBLA_ASSIGN_OR_RETURN(opened_, OpenFormat(options_.path, format(), csv, options_.label_kind));
  return absl::OkStatus();
}

absl::Status FileSource::CheckColumns() const {
  std::vector<std::string> expected;
  for (const Column& column : encoding_->columns) expected.push_back(column.name);
  if (expected == opened_.parser->columns()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options_.path, ": columns are ", absl::StrJoin(opened_.parser->columns(), ", "),
                   "; the training data has ", absl::StrJoin(expected, ", ")));
}

absl::Status FileSource::Restart() {
  EMBLA_ASSIGN_OR_RETURN(reader_, RecordReader::Open(options_.path, *opened_.parser, bad_rows_));
  if (read_before_) bad_rows_.BeginAnotherPass();
  read_before_ = false;
  position_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> FileSource::Next(Record& record) {
  read_before_ = true;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const bool more, reader_->Next(record));
    if (!more) return false;
    if (options_.split.Takes(position_++)) return true;
  }
}

absl::Status FileSource::Read(std::size_t count, Examples& out) {
  out.columns = columns().size();
  Record record;
  for (std::size_t i = 0; i < count; ++i) {
    EMBLA_ASSIGN_OR_RETURN(const bool more, Next(record));
    if (!more) break;
    for (std::size_t c = 0; c < out.columns; ++c) {
      out.rows.push_back(encoding_->encoders[c].Encode(record.cells[c]));
    }
    out.labels.push_back(record.label);
  }
  return absl::OkStatus();
}

}  // namespace embla::train
