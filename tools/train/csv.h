// CSV as in RFC 4180 with a header: quoted fields may hold separators, line breaks and "" for a
// quote. Blanks around fields that are not quoted do not count. Any character may separate; where
// it is a blank, several of them separate once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/record_reader.h"

namespace embla::train {

// Characters that are tried as separators, in this order.
inline constexpr std::string_view kSeparators = ",;\t|^~:\x01 ";

// Guesses the separator of a header. With the column `label`: the one that cuts the label out and
// the most columns with it. Otherwise: the one before the blank that occurs most.
char GuessSeparator(std::string_view header, std::string_view label);

// How a separator is shown to people: '|', or tab.
std::string SeparatorName(char separator);

// Returns the position of `label` among `names`; if it is not there, that of the one in other
// letters, A as a. NotFound lists the names. InvalidArgument: several have it in other letters.
absl::StatusOr<std::size_t> FindLabel(std::span<const std::string> names, std::string_view label);

// The fields of `line`. Unquoted ones are views of `line`; others, of `storage`.
// InvalidArgument: a quoted field is not closed, or text follows its closing quote.
absl::Status SplitCsv(std::string_view line, char separator, std::string& storage,
                      std::vector<std::string_view>& fields);

struct CsvColumns {
  std::string label = "label";
  std::vector<std::string> dropped;  // Columns that are not looked at.
  std::vector<std::string> ignored;  // Like `dropped`, but the columns may be absent.
  std::optional<char> separator;     // Absent: guessed.
};

class CsvParser final : public RecordParser {
 public:
  // NotFound: the header has no column of that name; the message lists those it has.
  static absl::StatusOr<CsvParser> FromHeader(std::string_view header, const CsvColumns& columns,
                                              LabelKind label_kind);

  const std::vector<std::string>& columns() const override { return columns_; }
  char separator() const { return separator_; }
  bool IsWhole(std::string_view text) const override;
  bool has_header() const override { return true; }
  absl::Status Parse(std::string_view text, Record& record) override;

 private:
  CsvParser() = default;
  absl::Status ChooseColumns(const std::vector<std::string>& names, const CsvColumns& columns);

  char separator_ = ',';
  LabelKind label_kind_ = LabelKind::kBinary;
  std::size_t label_position_ = 0;
  std::size_t field_count_ = 0;
  std::vector<std::size_t> positions_;  // Positions of columns_ among the fields.
  std::vector<std::string> columns_;
  std::string storage_;
  std::vector<std::string_view> fields_;
};

}  // namespace embla::train
