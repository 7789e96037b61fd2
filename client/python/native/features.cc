#include "client/python/native/features.h"

#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::python {
namespace {

// Bags of each feature.
absl::StatusOr<std::vector<std::size_t>> BagCounts(const FeatureSet& features,
                                                   const PackedIds& input, std::size_t lengths) {
  const std::size_t count = features.features().size();
  if (input.batch_sizes.empty()) {
    if (lengths % count != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(lengths, " lengths are not a multiple of ", count, " features"));
    }
    return std::vector<std::size_t>(count, lengths / count);
  }
  if (input.batch_sizes.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.batch_sizes.size(), " batch sizes for ", count, " features"));
  }
  std::vector<std::size_t> bags;
  std::size_t rest = lengths;
  for (const std::int64_t size : input.batch_sizes) {
    if (size < 0 || static_cast<std::size_t>(size) > rest) {
      return absl::InvalidArgumentError(
          absl::StrCat("the batch sizes do not sum to the ", lengths, " lengths: one is ", size));
    }
    bags.push_back(static_cast<std::size_t>(size));
    rest -= bags.back();
  }
  if (rest != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the batch sizes sum to ", lengths - rest,
                                                   ", there are ", lengths, " lengths"));
  }
  return bags;
}

absl::Status NegativeLength() {
  return absl::InvalidArgumentError("a length is negative, or above 2^31 - 1");
}

absl::Status CopyLengths(std::span<const std::int64_t> lengths, std::vector<std::uint32_t>& copy) {
  copy.resize(lengths.size());
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    bits |= static_cast<std::uint64_t>(lengths[i]);
    copy[i] = static_cast<std::uint32_t>(lengths[i]);
  }
  return bits >> 31 == 0 ? absl::OkStatus() : NegativeLength();
}

// The sum of one feature's lengths.
absl::StatusOr<std::size_t> CountIds(std::span<const std::uint32_t> lengths) {
  std::uint32_t bits = 0;
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) {
    bits |= length;
    sum += length;
  }
  if (bits >> 31 != 0) return NegativeLength();
  return sum;
}

absl::Status CheckRows(const FeatureSet& features, const PackedParts& cut, const PackedRows& rows,
                       bool one_batch_size) {
  const std::size_t bags = cut.parts.front().rows;
  std::size_t all_rows = 0;
  std::size_t floats = 0;
  for (std::size_t f = 0; f < cut.parts.size(); ++f) {
    all_rows += cut.parts[f].rows;
    floats += cut.parts[f].rows * features.features()[f].dim;
  }
  if (rows.flat) {
    if (rows.columns == floats) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the flat array has ", rows.columns, " floats, the rows need ", floats));
  }
  if (features.pooled() && !one_batch_size) {
    return absl::InvalidArgumentError("with batch_sizes the array of rows has one dimension");
  }
  const std::size_t expected_rows = features.pooled() ? bags : all_rows;
  const std::size_t expected_columns =
      features.pooled() ? features.columns() : features.features().front().dim;
  if (rows.rows == expected_rows && rows.columns == expected_columns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the array of rows is ", rows.rows, " x ",
                                                 rows.columns, ", must be ", expected_rows, " x ",
                                                 expected_columns));
}

}  // namespace

absl::StatusOr<FeatureSet> FeatureSet::Make(std::vector<Feature> features) {
  if (features.empty()) return absl::InvalidArgumentError("a FeatureSet needs a feature");
  const Feature first = features.front();
  std::size_t columns = 0;
  for (Feature& feature : features) {
    if (feature.dim == 0) {
      return absl::InvalidArgumentError(absl::StrCat("table ", feature.table, ": dim is 0"));
    }
    const bool pooled = feature.pooling != client::Pooling::kNone;
    if (pooled != (first.pooling != client::Pooling::kNone)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", feature.table, ": pooled and unpooled features need a FeatureSet each"));
    }
    if (!pooled && feature.dim != first.dim) {
      return absl::InvalidArgumentError(absl::StrCat("table ", feature.table, " has dim ",
                                                     feature.dim, ", unpooled features before it ",
                                                     first.dim));
    }
    feature.column = columns;
    columns += feature.dim;
  }
  FeatureSet set(std::move(features));
  set.columns_ = columns;
  return set;
}

absl::StatusOr<PackedParts> CutIntoFeatures(const FeatureSet& features, const PackedIds& input,
                                            const PackedRows& rows) {
  PackedParts cut;
  std::span<const std::uint32_t> lengths;
  if (const auto* wide = std::get_if<std::span<const std::int64_t>>(&input.lengths)) {
    EMBLA_RETURN_IF_ERROR(CopyLengths(*wide, cut.copied_lengths));
    lengths = cut.copied_lengths;
  } else {
    lengths = std::get<std::span<const std::uint32_t>>(input.lengths);
  }
  if (!input.weights.empty() && input.weights.size() != input.ids.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(input.weights.size(), " weights for ", input.ids.size(), " ids"));
  }
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::size_t> bags,
                         BagCounts(features, input, lengths.size()));
  std::size_t id = 0, bag = 0, row = 0, block = 0;
  for (std::size_t f = 0; f < bags.size(); ++f) {
    const FeatureSet::Feature& feature = features.features()[f];
    FeaturePart part;
    part.lengths = lengths.subspan(bag, bags[f]);
    bag += bags[f];
    EMBLA_ASSIGN_OR_RETURN(const std::size_t ids, CountIds(part.lengths));
    if (ids > input.ids.size() - id) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the lengths sum to more than the ", input.ids.size(), " ids, from feature ", f, " on"));
    }
    part.ids = input.ids.subspan(id, ids);
    if (!input.weights.empty()) part.weights = input.weights.subspan(id, ids);
    id += ids;
    part.rows = features.pooled() ? bags[f] : ids;
    part.stride = rows.flat ? feature.dim : rows.stride;
    part.first = rows.flat ? block : features.pooled() ? feature.column : row * rows.stride;
    row += part.rows;
    block += part.rows * feature.dim;
    cut.parts.push_back(part);
  }
  if (id != input.ids.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the lengths sum to ", id, ", there are ", input.ids.size(), " ids"));
  }
  EMBLA_RETURN_IF_ERROR(CheckRows(features, cut, rows, input.batch_sizes.empty()));
  return cut;
}

}  // namespace embla::python
