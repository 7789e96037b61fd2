#include "tools/train/line_reader.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::train {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenByteSource(path));
  return std::make_unique<LineReader>(path, std::move(source));
}

LineReader::LineReader(std::string name, std::unique_ptr<ByteSource> source)
    : name_(std::move(name)), source_(std::move(source)), buffer_(2 * kLineBytesMax) {}

absl::StatusOr<bool> LineReader::Next(std::string_view& line) {
  EMBLA_ASSIGN_OR_RETURN(const std::size_t end, FindLineEnd());
  if (end == begin_ && at_end_of_file_ && begin_ == end_) return false;
  ++line_number_;
  if (end - begin_ > kLineBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ":", line_number_,
                                                   ": line is longer than ", kLineBytesMax,
                                                   " bytes: not a text file?"));
  }
  line = TakeLine(end);
  return true;
}

// Returns the end of the current line: its \n, or end_ in the last line or one that is too long.
absl::StatusOr<std::size_t> LineReader::FindLineEnd() {
  std::size_t searched = begin_;
  while (true) {
    const void* found = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    if (found != nullptr) return static_cast<const char*>(found) - buffer_.data();
    if (at_end_of_file_ || end_ - begin_ > kLineBytesMax) return end_;
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    searched = end_;
    EMBLA_ASSIGN_OR_RETURN(const std::size_t got,
                           source_->Read({buffer_.data() + end_, buffer_.size() - end_}));
    at_end_of_file_ = got == 0;
    end_ += got;
  }
}

std::string_view LineReader::TakeLine(std::size_t end) {
  std::string_view line(buffer_.data() + begin_, end - begin_);
  begin_ = end < end_ ? end + 1 : end_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line_number_ == 1 && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  return line;
}

}  // namespace embla::train
