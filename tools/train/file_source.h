// Examples from a file of records.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/train/column_encoder.h"
#include "tools/train/examples.h"
#include "tools/train/formats.h"
#include "tools/train/record_reader.h"

namespace embla::train {

// How text becomes row numbers; shared by the training and the test file.
struct Encoding {
  std::vector<Column> columns;
  std::vector<ColumnEncoder> encoders;  // One per column.
  std::vector<std::string> left_out;    // Columns that only identify records.
};

// The part of a file's records that is used. Decided per record by its position and the seed.
struct Split {
  enum class Part { kAll, kTrain, kHoldout };
  Part part = Part::kAll;
  double holdout_share = 0.0;
  std::uint64_t seed = 0;

  bool Takes(std::uint64_t position) const;
};

struct FileOptions {
  std::string path;
  Format format = Format::kAuto;
  LabelKind label_kind = LabelKind::kBinary;
  CsvColumns csv;
  std::vector<std::string> keep_text;  // Columns whose numbers are names.
  ColumnRule rule;
  Split split;
};

// Thread safety: one thread at a time.
class FileSource final : public ExampleSource {
 public:
  // Reads the file once to choose the encoding, except for Criteo and ratings with raw ids, whose
  // encoding is fixed. Leaves columns of CSV out that identify records, unless they are to be kept
  // as text.
  // `bad_rows` is not owned and outlives this object.
  static absl::StatusOr<std::unique_ptr<FileSource>> Learn(const FileOptions& options,
                                                           BadRows& bad_rows);
  // Encodes as `encoding`, whose columns this file must have too.
  static absl::StatusOr<std::unique_ptr<FileSource>> Open(FileOptions options,
                                                          std::shared_ptr<const Encoding> encoding,
                                                          BadRows& bad_rows);

  const std::vector<Column>& columns() const override { return encoding_->columns; }
  absl::Status Restart() override;
  absl::Status Read(std::size_t count, Examples& out) override;

  Format format() const { return opened_.format; }
  char separator() const { return opened_.separator; }
  std::shared_ptr<const Encoding> encoding() const { return encoding_; }

 private:
  FileSource(FileOptions options, OpenedFormat opened, BadRows& bad_rows);
  absl::Status LearnEncoding();
  absl::StatusOr<std::vector<ColumnProfile>> ProfileColumns();
  absl::Status LeaveOut(const std::vector<std::string>& columns);
  // The numbers of this column are names.
  bool IsName(std::size_t column) const;
  absl::Status CheckColumns() const;
  absl::StatusOr<bool> Next(Record& record);

  const FileOptions options_;
  OpenedFormat opened_;
  BadRows& bad_rows_;
  std::shared_ptr<const Encoding> encoding_;
  std::unique_ptr<RecordReader> reader_;
  std::uint64_t position_ = 0;  // Position of the next record, whatever part it belongs to.
  bool read_before_ = false;
};

}  // namespace embla::train
