#include "tools/train/column_encoder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/text.h"
#include "tools/train/random.h"

namespace embla::train {
namespace {

constexpr int kFirstExponent = -40;  // Half powers of two.
constexpr int kLastExponent = 128;
constexpr std::uint32_t kReservedRows = 2;  // kMissingRow, kUnseenRow.
constexpr std::size_t kRecordIdsMin = 100;  // Fewer cells may all differ by chance.
constexpr double kRecordIdsPerCell = 4.0;   // Longest range of numbers that identify records.

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> ParseWhole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// FNV-1a, then mixed so that every bit counts: the same on every machine.
std::uint64_t HashText(std::string_view text, std::uint64_t salt) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001B3u;
  return SplitMix64(hash ^ SplitMix64(salt));
}

}  // namespace

int BucketOf(double value) {
  if (value == 0.0) return 0;
  const double exponent = std::floor(2.0 * std::log2(std::abs(value)));
  const int bucket = static_cast<int>(std::clamp<double>(exponent, kFirstExponent, kLastExponent)) +
                     1 - kFirstExponent;
  return value < 0.0 ? -bucket : bucket;
}

ColumnEncoder ColumnEncoder::AsIs(Values values) {
  ColumnEncoder encoder(Kind::kAsIs, static_cast<std::uint32_t>(values.size()) + kReservedRows);
  encoder.values_ = std::move(values);
  return encoder;
}

ColumnEncoder ColumnEncoder::Bucketed(int lowest, int highest) {
  EMBLA_CHECK(-kBucketMax <= lowest && lowest <= highest && highest <= kBucketMax);
  ColumnEncoder encoder(Kind::kBucketed,
                        static_cast<std::uint32_t>(highest - lowest + 1) + kReservedRows);
  encoder.lowest_ = lowest;
  encoder.highest_ = highest;
  return encoder;
}

ColumnEncoder ColumnEncoder::Hashed(std::uint32_t rows, std::uint64_t salt) {
  EMBLA_CHECK(rows >= 2);
  ColumnEncoder encoder(Kind::kHashed, rows);
  encoder.salt_ = salt;
  return encoder;
}

ColumnEncoder ColumnEncoder::RawKind(Kind kind, std::uint64_t salt) {
  ColumnEncoder encoder(kind, 0);
  encoder.salt_ = salt;
  return encoder;
}
ColumnEncoder ColumnEncoder::Raw(std::uint64_t salt) { return RawKind(Kind::kRaw, salt); }
ColumnEncoder ColumnEncoder::RawBucketed(std::uint64_t salt) {
  return RawKind(Kind::kRawBucketed, salt);
}
ColumnEncoder ColumnEncoder::RawNumbers(std::uint64_t salt) {
  return RawKind(Kind::kRawNumbers, salt);
}

std::int64_t ColumnEncoder::RawIdOf(std::string_view cell) const {
  if (kind_ == Kind::kRawNumbers) {
    if (const std::optional<std::int64_t> number = ParseWhole(cell)) return *number;
  }
  if (kind_ == Kind::kRawBucketed) {
    if (const std::optional<double> value = ParseNumber(cell)) {
      return static_cast<std::int64_t>(HashText(absl::StrCat(BucketOf(*value)), salt_));
    }
  }
  return static_cast<std::int64_t>(HashText(cell, salt_));
}

std::int64_t ColumnEncoder::Encode(std::string_view cell) const {
  if (rows_ == 0) return RawIdOf(cell);
  if (cell.empty()) return kMissingRow;
  switch (kind_) {
    case Kind::kAsIs: {
      const auto found = values_.find(ToAbsl(cell));
      return found == values_.end() ? kUnseenRow : found->second + kReservedRows;
    }
    case Kind::kBucketed: {
      const std::optional<double> value = ParseNumber(cell);
      if (!value) return kUnseenRow;
      return std::clamp(BucketOf(*value), lowest_, highest_) - lowest_ + kReservedRows;
    }
    case Kind::kHashed:
      return 1 + static_cast<std::int64_t>(HashText(cell, salt_) % (rows_ - 1));
    default:
      return RawIdOf(cell);
  }
}

std::string ColumnEncoder::Describe() const {
  switch (kind_) {
    case Kind::kAsIs:
      return absl::StrCat(values_.size(), " values as they are");
    case Kind::kBucketed:
      return absl::StrCat("numbers in ", rows_ - kReservedRows, " buckets by half powers of two");
    case Kind::kHashed:
      return absl::StrCat("values hashed to ", rows_, " rows");
    case Kind::kRaw:
      return "values hashed to 64-bit ids";
    case Kind::kRawBucketed:
      return "numbers by half powers of two, hashed to 64-bit ids";
    case Kind::kRawNumbers:
      return "whole numbers are ids, other values are hashed to 64-bit ids";
  }
  return "";
}

void ColumnProfile::Add(std::string_view cell) {
  ++cells_;
  if (cell.empty()) {
    repeats_ = true;
    return;
  }
  if (numeric_) {
    if (const std::optional<double> value = ParseNumber(cell)) {
      lowest_ = std::min(lowest_, BucketOf(*value));
      highest_ = std::max(highest_, BucketOf(*value));
    } else {
      numeric_ = false;
    }
  }
  if (whole_) {
    const std::optional<std::int64_t> value = ParseWhole(cell);
    whole_ = value.has_value();
    smallest_ = std::min(smallest_, value.value_or(smallest_));
    largest_ = std::max(largest_, value.value_or(largest_));
  }
  if (!overflowed_) AddValue(cell);
}

void ColumnProfile::AddValue(std::string_view cell) {
  if (values_.contains(ToAbsl(cell))) {
    repeats_ = true;
    return;
  }
  // With raw ids, values are kept only to see whether they are few, or all different.
  const bool needs_few = rule_.raw_ids && repeats_;
  const std::size_t most = needs_few ? rule_.as_is_max : rule_.hash_rows - kReservedRows - 1;
  if (values_.size() > most) {
    overflowed_ = true;
    values_.clear();
    return;
  }
  values_.emplace(std::string(cell), static_cast<std::uint32_t>(values_.size()));
}

bool ColumnProfile::IsRecordId() const {
  if (repeats_ || cells_ < kRecordIdsMin) return false;
  if (!numeric_) return true;
  const double range = static_cast<double>(largest_) - static_cast<double>(smallest_);
  return whole_ && range < kRecordIdsPerCell * static_cast<double>(cells_);
}

ColumnEncoder ColumnProfile::Choose() {
  const bool few = !overflowed_ && values_.size() <= rule_.as_is_max;
  if (rule_.raw_ids) {
    return numeric_ && !few ? ColumnEncoder::RawBucketed(salt_) : ColumnEncoder::Raw(salt_);
  }
  if (numeric_ && !few) return ColumnEncoder::Bucketed(lowest_, highest_);
  if (overflowed_) return ColumnEncoder::Hashed(rule_.hash_rows, salt_);
  return ColumnEncoder::AsIs(std::move(values_));
}

}  // namespace embla::train
