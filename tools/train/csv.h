// CSV as in RFC 4180 with a header: quoted fields may hold separators, line breaks and "" for a
// quote. The separator is a comma, a semicolon or a tab, whichever the header has most of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/record_reader.h"

namespace embla::train {

char GuessSeparator(std::string_view header);

// The fields of `line`. Unquoted ones are views of `line`; others, of `storage`.
// InvalidArgument: a quoted field is not closed, or text follows its closing quote.
absl::Status SplitCsv(std::string_view line, char separator, std::string& storage,
                      std::vector<std::string_view>& fields);

struct CsvColumns {
  std::string label = "label";
  std::vector<std::string> dropped;  // Columns that are not looked at.
};

class CsvParser final : public RecordParser {
 public:
  // NotFound: the header has no column of that name; the message lists those it has.
  static absl::StatusOr<CsvParser> FromHeader(std::string_view header, const CsvColumns& columns,
                                              LabelKind label_kind);

  const std::vector<std::string>& columns() const override { return columns_; }
  bool IsWhole(std::string_view text) const override;
  bool has_header() const override { return true; }
  absl::Status Parse(std::string_view text, Record& record) override;

 private:
  CsvParser() = default;

  char separator_ = ',';
  LabelKind label_kind_ = LabelKind::kBinary;
  std::size_t label_position_ = 0;
  std::size_t field_count_ = 0;
  std::vector<std::size_t> positions_;  // Of columns_ among the fields.
  std::vector<std::string> columns_;
  std::string storage_;
  std::vector<std::string_view> fields_;
};

}  // namespace embla::train
