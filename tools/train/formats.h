// The input formats and how one is guessed from a file's first lines.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/train/csv.h"
#include "tools/train/record_reader.h"

namespace embla::train {

enum class Format { kAuto, kCsv, kCriteo, kRatings };

std::string_view NameOf(Format format);  // auto csv criteo ratings

struct OpenedFormat {
  Format format = Format::kAuto;
  char separator = ',';  // Separator of CSV and Criteo.
  std::unique_ptr<RecordParser> parser;
};

// Looks at the first lines of `path`. With kAuto: CSV when line 1 names the label column, Criteo
// when it has 40 fields, ratings when it has three or four and the third is a number.
// columns.separator is that of all three formats.
// InvalidArgument: it is none of these, or the file is empty.
absl::StatusOr<OpenedFormat> OpenFormat(const std::string& path, Format wanted,
                                        const CsvColumns& columns, LabelKind label_kind);

}  // namespace embla::train
