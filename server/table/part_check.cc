#include "server/table/part_check.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"

namespace embla {
namespace {

// Positions inside a part are 32-bit numbers in the kernels.
constexpr std::size_t kIdsMax = std::size_t{1} << 31;

template <typename... Parts>
absl::Status Invalid(TableId table, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("part of table ", ToInt(table), ": ", parts...));
}

bool KnownDType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kInt8Rowwise;
}

absl::Status CheckBags(TableId table, std::span<const std::uint32_t> lengths, std::size_t ids) {
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) sum += length;
  if (sum == ids) return absl::OkStatus();
  return Invalid(table, lengths.size(), " bag lengths sum to ", sum, ", but there are ", ids,
                 " ids");
}

template <typename Part>
absl::Status CheckCommon(const Part& part) {
  if (part.column_begin >= part.column_end || part.column_end > kDimMax) {
    return Invalid(part.table, "columns [", part.column_begin, ", ", part.column_end, ")");
  }
  if (part.ids.size() > kIdsMax || part.lengths.size() > kIdsMax) {
    return Invalid(part.table, part.ids.size(), " ids in ", part.lengths.size(),
                   " bags, the limit is ", kIdsMax);
  }
  if (!part.weights.empty() && part.weights.size() != part.ids.size()) {
    return Invalid(part.table, part.weights.size(), " weights for ", part.ids.size(), " ids");
  }
  return absl::OkStatus();
}

absl::Status CheckImages(const UpdatePart& part, DType wire_dtype) {
  if (wire_dtype != DType::kFloat32) {
    return Invalid(part.table, "images of dtype ", static_cast<int>(wire_dtype));
  }
  if (part.image_floats() == 0 || part.state_floats > kRowBlockStateFloatsMax) {
    return Invalid(part.table, "images of ", part.image_floats(), " floats, ", part.state_floats,
                   " of them state");
  }
  if (part.lengths.empty() && part.weights.empty() && part.row_sum_squares.empty() &&
      !part.clipped && !part.learning_rate.has_value()) {
    return absl::OkStatus();
  }
  return Invalid(part.table, "images with what belongs to gradients");
}

}  // namespace

absl::Status CheckPart(const LookupPart& part) {
  EMBLA_RETURN_IF_ERROR(CheckCommon(part));
  if (!part.weights.empty() && part.pooling != Pooling::kSum) {
    return Invalid(part.table, "weights need pooling sum");
  }
  switch (part.pooling) {
    case Pooling::kNone:
      if (part.lengths.empty()) return absl::OkStatus();
      return Invalid(part.table, part.lengths.size(), " bag lengths without pooling");
    case Pooling::kSum:
    case Pooling::kMean:
      return CheckBags(part.table, part.lengths, part.ids.size());
  }
  return Invalid(part.table, "pooling ", static_cast<int>(part.pooling), " is unknown");
}

absl::Status CheckPart(const UpdatePart& part, DType wire_dtype) {
  EMBLA_RETURN_IF_ERROR(CheckCommon(part));
  if (!KnownDType(wire_dtype)) {
    return Invalid(part.table, "gradients of dtype ", static_cast<int>(wire_dtype));
  }
  if (part.form == UpdatePart::Form::kBags) {
    if (part.pooling != Pooling::kSum && part.pooling != Pooling::kMean) {
      return Invalid(part.table, "gradients per bag need pooling sum or mean");
    }
    if (!part.weights.empty() && part.pooling != Pooling::kSum) {
      return Invalid(part.table, "weights need pooling sum");
    }
    EMBLA_RETURN_IF_ERROR(CheckBags(part.table, part.lengths, part.ids.size()));
  } else if (part.is_images()) {
    EMBLA_RETURN_IF_ERROR(CheckImages(part, wire_dtype));
  } else if (part.form != UpdatePart::Form::kRows) {
    return Invalid(part.table, "gradient form ", static_cast<int>(part.form), " is unknown");
  } else if (!part.lengths.empty() || !part.weights.empty()) {
    return Invalid(part.table, "bag lengths or weights with gradients per row");
  }
  const float rate = part.learning_rate.value_or(0.0f);
  if (!(rate >= 0 && std::isfinite(rate))) {
    return Invalid(part.table, "learning_rate ", rate, " is not finite and at least 0");
  }
  const std::size_t row_bytes = part.row_bytes(wire_dtype);
  if (part.gradients.size() / row_bytes != part.gradient_rows() ||
      part.gradients.size() % row_bytes != 0) {
    return Invalid(part.table, part.gradients.size(), " bytes of gradients, expected ",
                   part.gradient_rows(), " rows of ", row_bytes);
  }
  if (part.row_sum_squares.empty()) return absl::OkStatus();
  if (part.form != UpdatePart::Form::kRows || part.row_sum_squares.size() != part.ids.size()) {
    return Invalid(part.table, part.row_sum_squares.size(), " row_sum_squares for ",
                   part.ids.size(), " ids; they go with gradients per row, one per id");
  }
  return absl::OkStatus();
}

absl::Status CheckUpdateId(const UpdateBatch& batch) {
  if (ToInt(batch.session) == 0 || ToInt(batch.seq) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("update has session ", ToInt(batch.session),
                                                   " and seq ", ToInt(batch.seq),
                                                   ", both begin at 1"));
  }
  if (ToInt(batch.first_incomplete) > ToInt(batch.seq)) {
    return absl::InvalidArgumentError(
        absl::StrCat("update ", ToInt(batch.seq), " says that everything below ",
                     ToInt(batch.first_incomplete), " is acknowledged"));
  }
  return absl::OkStatus();
}

}  // namespace embla
