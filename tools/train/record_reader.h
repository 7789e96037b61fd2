// Reads labelled records from a text file and accounts for the rows it cannot use.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/train/line_reader.h"

namespace embla::train {

// One row of input. The cells are views that are valid until the next record is read.
struct Record {
  float label = 0.0f;
  std::vector<std::string_view> cells;  // One per column; empty: missing.
};

// Counts rows that cannot be used; says the first few aloud.
class BadRows {
 public:
  // Writes the first `shown_max` to `out`, which is not owned and outlives this object.
  // strict: the first bad row is an error.
  BadRows(std::ostream& out, int shown_max, bool strict)
      : out_(out), shown_max_(shown_max), strict_(strict) {}

  // InvalidArgument when strict.
  absl::Status Add(std::string_view file, std::int64_t line, std::string_view reason);

  // Forgets the count but stays silent: the same rows are about to be read again.
  void BeginAnotherPass();

  std::int64_t count() const { return count_; }

 private:
  std::ostream& out_;
  const int shown_max_;
  const bool strict_;
  std::int64_t count_ = 0;
  bool silent_ = false;
};

// Labels that are accepted.
//   kBinary   0 or 1, also written 0.0, 1.0, -1 (as 0) and +1
//   kNumber   any finite number
enum class LabelKind { kBinary, kNumber };

// InvalidArgument says what is wrong with `text`.
absl::StatusOr<float> ParseLabel(std::string_view text, LabelKind kind);

// Cuts one line into label and cells. Implementations: csv.h, criteo.h, ratings.h.
class RecordParser {
 public:
  virtual ~RecordParser() = default;

  // Names of the cells; the label is not one of them.
  virtual const std::vector<std::string>& columns() const = 0;
  // False: `text` is the beginning of a record that goes on in the next line.
  virtual bool IsWhole(std::string_view text) const = 0;
  // Line 1 holds names, not values.
  virtual bool has_header() const = 0;
  // InvalidArgument: why this row cannot be used. Cells are views of `text` or of this parser.
  virtual absl::Status Parse(std::string_view text, Record& record) = 0;
};

// Thread safety: one thread at a time.
class RecordReader {
 public:
  // `parser` and `bad_rows` are not owned; they outlive this object.
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(const std::string& path,
                                                            RecordParser& parser,
                                                            BadRows& bad_rows);
  RecordReader(std::unique_ptr<LineReader> lines, RecordParser& parser, BadRows& bad_rows);

  // False at the end. Skips empty lines and, counting them, bad rows.
  absl::StatusOr<bool> Next(Record& record);

 private:
  absl::StatusOr<bool> NextText(std::string_view& text);
  absl::Status AppendRest();

  const std::unique_ptr<LineReader> lines_;
  RecordParser& parser_;
  BadRows& bad_rows_;
  std::string joined_;           // A record of several lines.
  std::int64_t first_line_ = 0;  // First line of the current record.
};

}  // namespace embla::train
