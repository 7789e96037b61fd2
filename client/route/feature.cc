#include "client/route/feature.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/route/error_details.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

constexpr std::size_t kIdsMax = std::numeric_limits<std::uint32_t>::max() - 1;

absl::Status LengthsFromOffsets(const FeatureArguments& arguments, Feature& feature) {
  const std::span<const std::int64_t> offsets = arguments.offsets;
  if (offsets.front() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("offsets start at ", offsets.front(), ", not 0"));
  }
  feature.lengths_from_offsets.resize(offsets.size() - 1);
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    if (offsets[b + 1] < offsets[b] || offsets[b + 1] > static_cast<std::int64_t>(kIdsMax)) {
      return absl::InvalidArgumentError(absl::StrCat("offsets must ascend: offset ", b + 1, " is ",
                                                     offsets[b + 1], " after ", offsets[b]));
    }
    feature.lengths_from_offsets[b] = static_cast<std::uint32_t>(offsets[b + 1] - offsets[b]);
  }
  feature.lengths = feature.lengths_from_offsets;
  return absl::OkStatus();
}

absl::Status CheckLengths(const FeatureArguments& arguments, Feature& feature) {
  if (!arguments.lengths.empty() && !arguments.offsets.empty()) {
    return absl::InvalidArgumentError("give lengths or offsets, not both");
  }
  feature.lengths = arguments.lengths;
  if (!arguments.offsets.empty()) {
    EMBLA_RETURN_IF_ERROR(LengthsFromOffsets(arguments, feature));
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t length : feature.lengths) sum += length;
  const bool given = !arguments.lengths.empty() || !arguments.offsets.empty();
  if (sum != arguments.ids.size() && (given || arguments.pooling != Pooling::kNone)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the bag lengths sum to ", sum, ", but there are ", arguments.ids.size(), " ids"));
  }
  if (arguments.pooling == Pooling::kNone) feature.lengths = {};
  return absl::OkStatus();
}

absl::Status CheckWeights(const FeatureArguments& arguments) {
  if (arguments.weights.empty()) return absl::OkStatus();
  if (arguments.pooling != Pooling::kSum) {
    return absl::InvalidArgumentError("weights need pooling sum");
  }
  if (arguments.weights.size() != arguments.ids.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.weights.size(), " weights for ", arguments.ids.size(), " ids"));
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const FeatureArguments& arguments, Feature& feature) {
  const std::string values(arguments.values_name);
  const std::size_t rows = feature.rows();
  feature.stride = arguments.stride == 0 ? feature.dim : arguments.stride;
  if (feature.stride < feature.dim) {
    return absl::InvalidArgumentError(absl::StrCat(values, "_stride is ", feature.stride,
                                                   " floats, but a row has ", feature.dim));
  }
  // The last row of an array that other features share ends before its stride does.
  const std::size_t expected = rows == 0 ? 0 : (rows - 1) * feature.stride + feature.dim;
  const bool is_packed = feature.stride == feature.dim;
  if (is_packed ? arguments.value_count == expected : arguments.value_count >= expected) {
    return absl::OkStatus();
  }
  const std::string apart = is_packed ? "" : absl::StrCat(", ", feature.stride, " apart,");
  return absl::InvalidArgumentError(absl::StrCat(values, " has ", arguments.value_count,
                                                 " floats, but ", rows, " rows x dim ", feature.dim,
                                                 apart, " are ", expected));
}

absl::Status Check(const FeatureArguments& arguments, Feature& feature) {
  if (arguments.pooling != Pooling::kNone && arguments.pooling != Pooling::kSum &&
      arguments.pooling != Pooling::kMean) {
    return absl::InvalidArgumentError(
        absl::StrCat("pooling ", static_cast<int>(arguments.pooling), " is none, sum or mean"));
  }
  if (arguments.ids.size() > kIdsMax || arguments.lengths.size() > kIdsMax) {
    return absl::InvalidArgumentError(absl::StrCat(arguments.ids.size(), " ids in ",
                                                   arguments.lengths.size(),
                                                   " bags are too many: split the batch"));
  }
  EMBLA_RETURN_IF_ERROR(CheckLengths(arguments, feature));
  EMBLA_RETURN_IF_ERROR(CheckWeights(arguments));
  return CheckValues(arguments, feature);
}

}  // namespace

FeatureArguments ArgumentsOf(const FeatureLookup& feature) {
  return {.table = feature.table,
          .ids = feature.ids,
          .lengths = feature.lengths,
          .offsets = feature.offsets,
          .weights = feature.weights,
          .pooling = feature.pooling,
          .value_count = feature.rows_out.size(),
          .stride = feature.rows_out_stride,
          .values_name = "rows_out"};
}

FeatureArguments ArgumentsOf(const FeatureGradient& feature) {
  return {.table = feature.table,
          .ids = feature.ids,
          .lengths = feature.lengths,
          .offsets = feature.offsets,
          .weights = feature.weights,
          .pooling = feature.pooling,
          .value_count = feature.gradients.size(),
          .stride = feature.gradients_stride,
          .values_name = "gradients"};
}

absl::StatusOr<Feature> CheckFeature(const Routes& routes, const FeatureArguments& arguments,
                                     std::size_t position, const GroupChoice& groups) {
  const TableRoute* table = routes.Find(arguments.table);
  if (table == nullptr) return routes.NoSuchTable(arguments.table);
  Feature feature;
  feature.table = table->spec().id;
  feature.dim = table->spec().dim;
  feature.pooling = arguments.pooling;
  feature.ids = arguments.ids;
  feature.weights = arguments.weights;
  EMBLA_ASSIGN_OR_RETURN(feature.replica_group, groups.Of(table->spec()));
  if (const absl::Status status = Check(arguments, feature); !status.ok()) {
    const std::string& name = table->spec().name;
    return AboutTable(Annotate(status, absl::StrCat("feature ", position, ", table ", name)), name);
  }
  return feature;
}

}  // namespace embla::client
