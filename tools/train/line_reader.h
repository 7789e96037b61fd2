// Lines of a text file, one at a time, with their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/byte_source.h"

namespace embla::train {

inline constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;

// Ends lines at \n or \r\n and drops a byte order mark at the start of the file.
// Thread safety: one thread at a time.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(const std::string& path);
  LineReader(std::string name, std::unique_ptr<ByteSource> source);

  // False at the end of the file. `line` is valid until the next call.
  // InvalidArgument: a line is longer than kLineBytesMax, so this is no text file.
  absl::StatusOr<bool> Next(std::string_view& line);

  // Number of the line that Next returned last; the first is 1.
  std::int64_t line_number() const { return line_number_; }
  const std::string& name() const { return name_; }

 private:
  absl::StatusOr<std::size_t> FindLineEnd();
  std::string_view TakeLine(std::size_t end);

  const std::string name_;
  const std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // Unread bytes are buffer_[begin_, end_).
  std::size_t end_ = 0;
  bool at_end_of_file_ = false;
  std::int64_t line_number_ = 0;
};

}  // namespace embla::train
