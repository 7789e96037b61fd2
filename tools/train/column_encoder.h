// Turns the text of one column into row numbers of an embedding table.
//
// The rule, chosen per column from the training data and printed at the start:
//   as it is   text, or numbers with at most `as_is_max` distinct values: one row per value
//   bucketed   numbers with more: half powers of two, so that 100 and 120 share a row, 100 and 150
//              do not; the sign is kept, zero stands alone. Values outside the trained range fall
//              into its first or last bucket
//   hashed     text with more than hash_rows distinct values: values may share a row
// Every column has row 0 for a missing value. Unless it is hashed, it has row 1 for values that the
// training data did not have.
//
// With raw ids nothing is looked up: every value is its own 64-bit id, for a ZCH table, which gives
// it a row of its own. Columns of text are hashed with the column, so that no two columns share an
// id; numbers are bucketed as above; users and items that are whole numbers stay as they are.
//
// A column whose value is another one in every record identifies records and tells nothing about
// the next one: ColumnProfile::IsRecordId notices it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace embla::train {

inline constexpr std::uint32_t kMissingRow = 0;
inline constexpr std::uint32_t kUnseenRow = 1;

struct ColumnRule {
  std::size_t as_is_max = 100;         // Distinct numbers that are still taken as they are.
  std::uint32_t hash_rows = 1u << 20;  // Most rows of a column; at least 4.
  bool raw_ids = false;
};

// Half powers of two: 0 for 0, else sign * (41 + floor(2 log2 |value|)), with |value| limited to
// 2^-20 .. 2^64. Requires: value is finite.
inline constexpr int kBucketMax = 169;
int BucketOf(double value);

// Thread safety: const methods may be called from any thread.
class ColumnEncoder {
 public:
  using Values = absl::flat_hash_map<std::string, std::uint32_t>;

  // values[text] counts from 0 without a gap.
  static ColumnEncoder AsIs(Values values);
  // Requires: lowest <= highest, both within +-kBucketMax.
  static ColumnEncoder Bucketed(int lowest, int highest);
  // `salt` makes columns collide independently of each other. Requires: rows >= 2.
  static ColumnEncoder Hashed(std::uint32_t rows, std::uint64_t salt);

  // Raw ids: hashes of text, or of buckets of numbers, with `salt`.
  static ColumnEncoder Raw(std::uint64_t salt);
  static ColumnEncoder RawBucketed(std::uint64_t salt);
  // Whole numbers as they are, other text hashed.
  static ColumnEncoder RawNumbers(std::uint64_t salt);

  std::uint32_t rows() const { return rows_; }  // 0: raw ids.
  // Below rows(), or a raw id.
  std::int64_t Encode(std::string_view cell) const;
  // For people: "42 values as they are".
  std::string Describe() const;

 private:
  enum class Kind { kAsIs, kBucketed, kHashed, kRaw, kRawBucketed, kRawNumbers };
  ColumnEncoder(Kind kind, std::uint32_t rows) : kind_(kind), rows_(rows) {}
  static ColumnEncoder RawKind(Kind kind, std::uint64_t salt);
  std::int64_t RawIdOf(std::string_view cell) const;

  Kind kind_;
  std::uint32_t rows_;
  Values values_;
  int lowest_ = 0;
  int highest_ = 0;
  std::uint64_t salt_ = 0;
};

// Looks at every cell of one column of the training data, then chooses the encoder.
class ColumnProfile {
 public:
  // keep_text: the numbers of this column are names (a postcode), so they are never bucketed.
  ColumnProfile(const ColumnRule& rule, bool keep_text, std::uint64_t salt)
      : rule_(rule), numeric_(!keep_text), whole_(!keep_text), salt_(salt) {}

  void Add(std::string_view cell);
  // Every one of at least 100 cells was another text, or another whole number of a range that is at
  // most four times as long as the column. Numbers that lie further apart may measure something.
  bool IsRecordId() const;
  // Once, after the last Add.
  ColumnEncoder Choose();

 private:
  void AddValue(std::string_view cell);

  const ColumnRule rule_;
  bool numeric_;  // All values so far are numbers,
  bool whole_;    // and whole ones, of this range.
  std::int64_t smallest_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t largest_ = std::numeric_limits<std::int64_t>::min();
  const std::uint64_t salt_;
  bool overflowed_ = false;  // More distinct values than are kept; values_ is empty.
  std::size_t cells_ = 0;
  bool repeats_ = false;  // A cell was empty or had been there before.
  ColumnEncoder::Values values_;
  int lowest_ = kBucketMax;
  int highest_ = -kBucketMax;
};

}  // namespace embla::train
