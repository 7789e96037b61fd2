// Ratings: `user item rating [timestamp]`, separated by `::` or one character (MovieLens 100K, 1M
// and 25M). A first line whose third field is no number is a header.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/train/record_reader.h"

namespace embla::train {

// The separator of a line of three or four fields whose third is a number, or `wanted`, if it is
// that; nullopt: it has none.
std::optional<std::string> RatingsSeparator(std::string_view line,
                                            std::optional<char> wanted = std::nullopt);

class RatingsParser final : public RecordParser {
 public:
  RatingsParser(std::string separator, bool has_header);

  const std::vector<std::string>& columns() const override { return columns_; }  // user, item
  bool IsWhole(std::string_view) const override { return true; }
  bool has_header() const override { return has_header_; }
  absl::Status Parse(std::string_view text, Record& record) override;

 private:
  const std::string separator_;
  const bool has_header_;
  const std::vector<std::string> columns_ = {"user", "item"};
  std::vector<std::string_view> fields_;
};

}  // namespace embla::train
