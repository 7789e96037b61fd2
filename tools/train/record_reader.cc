#include "tools/train/record_reader.h"

#include <charconv>
#include <cmath>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::train {
namespace {

// A quote that is never closed must not swallow the rest of the file.
constexpr int kLinesPerRecordMax = 64;
constexpr std::size_t kQuotedBytesMax = 32;

std::string Quote(std::string_view text) {
  return absl::StrCat("'", ToAbsl(text.substr(0, kQuotedBytesMax)),
                      text.size() > kQuotedBytesMax ? "...'" : "'");
}

}  // namespace

absl::Status BadRows::Add(std::string_view file, std::int64_t line, std::string_view reason) {
  ++count_;
  const std::string text = absl::StrCat(ToAbsl(file), ":", line, ": ", ToAbsl(reason));
  if (strict_) return absl::InvalidArgumentError(absl::StrCat("bad row: ", text));
  if (!silent_ && count_ <= shown_max_) out_ << "bad row: " << text << "\n";
  if (!silent_ && count_ == shown_max_ + 1) out_ << "bad row: more of them are only counted\n";
  return absl::OkStatus();
}

void BadRows::BeginAnotherPass() {
  count_ = 0;
  silent_ = true;
}

absl::StatusOr<float> ParseLabel(std::string_view text, LabelKind kind) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  float value = 0.0f;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat("label ", Quote(text), " is not a number"));
  }
  if (kind == LabelKind::kNumber) return value;
  if (value == -1.0f) return 0.0f;
  if (value == 0.0f || value == 1.0f) return value;
  return absl::InvalidArgumentError(absl::StrCat("label ", Quote(text), " is neither 0 nor 1"));
}

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                                 RecordParser& parser,
                                                                 BadRows& bad_rows) {
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<LineReader> lines, LineReader::Open(path));
  return std::make_unique<RecordReader>(std::move(lines), parser, bad_rows);
}

RecordReader::RecordReader(std::unique_ptr<LineReader> lines, RecordParser& parser,
                           BadRows& bad_rows)
    : lines_(std::move(lines)), parser_(parser), bad_rows_(bad_rows) {}

absl::StatusOr<bool> RecordReader::Next(Record& record) {
  std::string_view text;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const bool more, NextText(text));
    if (!more) return false;
    const absl::Status parsed = parser_.Parse(text, record);
    if (parsed.ok()) return true;
    EMBLA_RETURN_IF_ERROR(bad_rows_.Add(lines_->name(), first_line_, Message(parsed)));
  }
}

absl::StatusOr<bool> RecordReader::NextText(std::string_view& text) {
  do {
    EMBLA_ASSIGN_OR_RETURN(const bool more, lines_->Next(text));
    if (!more) return false;
  } while (text.empty() || (lines_->line_number() == 1 && parser_.has_header()));
  first_line_ = lines_->line_number();
  if (parser_.IsWhole(text)) return true;
  joined_ = text;
  EMBLA_RETURN_IF_ERROR(AppendRest());
  text = joined_;
  return true;
}

absl::Status RecordReader::AppendRest() {
  std::string_view line;
  for (int i = 1; i < kLinesPerRecordMax && !parser_.IsWhole(joined_); ++i) {
    EMBLA_ASSIGN_OR_RETURN(const bool more, lines_->Next(line));
    if (!more) break;
    absl::StrAppend(&joined_, "\n", ToAbsl(line));
  }
  return absl::OkStatus();
}

}  // namespace embla::train
