// The Criteo click logs: label, 13 integers, 26 categories in hex, separated by tabs or by another
// character. Fields may be missing; a row without the last fields altogether counts as bad.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/train/record_reader.h"

namespace embla::train {

inline constexpr std::size_t kCriteoIntegers = 13;
inline constexpr std::size_t kCriteoCategories = 26;

// Columns I1..I13 and C1..C26.
class CriteoParser final : public RecordParser {
 public:
  explicit CriteoParser(char separator);

  const std::vector<std::string>& columns() const override { return columns_; }
  bool IsWhole(std::string_view) const override { return true; }
  bool has_header() const override { return false; }
  absl::Status Parse(std::string_view text, Record& record) override;

 private:
  const char separator_;
  std::vector<std::string> columns_;
};

}  // namespace embla::train
