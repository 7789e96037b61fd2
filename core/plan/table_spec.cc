#include "core/plan/table_spec.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla {
namespace {

constexpr std::uint32_t kColumnGranuleDefault = 4;
constexpr std::size_t kNameBytesMax = 128;

absl::Status CheckRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();  // False for NaN.
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", allowed is ", low, " to ", high));
}

// A beta of exactly 1 would divide by zero.
absl::Status CheckBeta(const char* field, float value) {
  if (value >= 0.0f && value < 1.0f) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", allowed is 0 up to, but not including, 1"));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

template <typename Enum>
absl::Status CheckKnown(const char* field, Enum value) {
  if (!NameOf(value).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has the unknown value ", static_cast<int>(value)));
}

absl::Status CheckShape(const TableSpec& spec) {
  if (spec.rows < 1 || spec.rows > kRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows is ", spec.rows, ", allowed is 1 to ", kRowsMax));
  }
  if (spec.dim < 1 || spec.dim > kDimMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("dim is ", spec.dim, ", allowed is 1 to ", kDimMax));
  }
  const std::int64_t granules_max = std::min<std::int64_t>(spec.rows, kRowGranulesMax);
  if (spec.row_granules < 1 || spec.row_granules > granules_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_granules is ", spec.row_granules, ", allowed is 1 to ", granules_max));
  }
  const std::uint32_t width = spec.column_granule_width;
  if (width == 0 || width > kDimMax || (width % 4 != 0 && width < spec.dim)) {
    return absl::InvalidArgumentError(absl::StrCat("column_granule_width is ", width,
                                                   ", allowed are multiples of 4 up to ", kDimMax,
                                                   ", and dim (", spec.dim, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const TableSpec& spec) {
  if (spec.replica_groups < 1 || spec.replica_groups > kReplicaGroupsMax) {
    return absl::InvalidArgumentError(absl::StrCat("replica_groups is ", spec.replica_groups,
                                                   ", allowed is 1 to ", kReplicaGroupsMax));
  }
  if (spec.sync_every_steps == 0 || spec.replica_groups > 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sync_every_steps is ", spec.sync_every_steps,
                                                 " but there is only one replica group"));
}

absl::Status CheckSync(const TableSpec& spec) {
  if (!spec.sync.has_value()) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(spec.sync->Validate());
  if (spec.replica_groups == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("replica_groups is ", spec.replica_groups,
                   ", a table with synchronous steps has no replica groups"));
}

absl::Status CheckZch(const TableSpec& spec) {
  if (!spec.zch.has_value()) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(spec.zch->Validate(spec.rows));
  if (spec.row_granules != spec.zch->buckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_granules is ", spec.row_granules,
                     ", a zch table has one per bucket: ", spec.zch->buckets, ", or leave it 0"));
  }
  if (spec.column_granule_width < spec.dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("column_granule_width is ", spec.column_granule_width,
                     ", a zch table's columns are never cut: ", spec.dim, ", or leave it 0"));
  }
  if (spec.replica_groups == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("replica_groups is ", spec.replica_groups,
                                                 ", a zch table has no replica groups"));
}

absl::Status CheckCallers(const std::vector<std::string>& callers) {
  if (callers.size() > kCallersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("callers are ", callers.size(), ", at most ", kCallersMax));
  }
  std::set<std::string_view> seen;
  for (const std::string& caller : callers) {
    EMBLA_RETURN_IF_ERROR(ValidateName("caller", caller));
    if (seen.insert(caller).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("caller ", caller, " is named twice"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateName(std::string_view what, std::string_view name) {
  const bool valid = !name.empty() && name.size() <= kNameBytesMax && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), IsNameCharacter);
  if (valid) return absl::OkStatus();
  std::string shown;
  for (const char c : name.substr(0, 40)) shown += c >= ' ' && c < 127 ? c : '?';
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(what), " \"", shown, "\" of ", name.size(),
                   " bytes, allowed are 1 to 128 of A-Z a-z 0-9 . _ - without a leading dot"));
}

absl::Status OptimizerSpec::Validate() const {
  constexpr float kLargest = 1e30f;
  EMBLA_RETURN_IF_ERROR(CheckKnown("optimizer", kind));
  EMBLA_RETURN_IF_ERROR(CheckKnown("weight_decay_mode", weight_decay_mode));
  EMBLA_RETURN_IF_ERROR(CheckKnown("bias_correction", bias_correction));
  EMBLA_RETURN_IF_ERROR(CheckRange("learning_rate", learning_rate, 0.0f, kLargest));
  EMBLA_RETURN_IF_ERROR(CheckRange("eps", eps, 0.0f, kLargest));
  EMBLA_RETURN_IF_ERROR(CheckBeta("beta1", beta1));
  EMBLA_RETURN_IF_ERROR(CheckBeta("beta2", beta2));
  EMBLA_RETURN_IF_ERROR(CheckRange("initial_accumulator", initial_accumulator, 0.0f, kLargest));
  EMBLA_RETURN_IF_ERROR(CheckRange("weight_decay", weight_decay, 0.0f, kLargest));
  EMBLA_RETURN_IF_ERROR(CheckRange("gradient_clip", gradient_clip, 0.0f, kLargest));
  if (weight_decay_mode == WeightDecayMode::kNone && weight_decay != 0.0f) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight_decay is ", weight_decay,
                     " but weight_decay_mode is none; say l2 or decoupled, or set it to 0"));
  }
  return absl::OkStatus();
}

absl::Status InitSpec::Validate() const {
  constexpr float kLargest = 1e30f;
  EMBLA_RETURN_IF_ERROR(CheckKnown("init", kind));
  EMBLA_RETURN_IF_ERROR(CheckRange("init a", a, -kLargest, kLargest));
  EMBLA_RETURN_IF_ERROR(CheckRange("init b", b, -kLargest, kLargest));
  if (kind == InitKind::kUniform && !(a < b)) {
    return absl::InvalidArgumentError(
        absl::StrCat("init uniform over [", a, ", ", b, ") is empty: a must be less than b"));
  }
  if (kind == InitKind::kNormal && b < 0.0f) {
    return absl::InvalidArgumentError(
        absl::StrCat("init normal has the standard deviation ", b, ", allowed is 0 or more"));
  }
  return absl::OkStatus();
}

void TableSpec::SetDefaults() {
  if (zch.has_value() && zch->buckets > 0) {
    if (rows > 0 && rows <= kRowsMax) rows = zch->RoundUp(rows);
    if (row_granules == 0) row_granules = zch->buckets;
    if (column_granule_width == 0) column_granule_width = dim;
  }
  if (row_granules == 0) {
    row_granules = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(rows, 1, std::int64_t{kRowGranulesDefault}));
  }
  if (column_granule_width == 0) column_granule_width = kColumnGranuleDefault;
}

absl::Status TableSpec::Validate() const {
  EMBLA_RETURN_IF_ERROR(ValidateName("table name", name));
  const auto check = [this]() -> absl::Status {
    EMBLA_RETURN_IF_ERROR(CheckShape(*this));
    EMBLA_RETURN_IF_ERROR(CheckGroups(*this));
    EMBLA_RETURN_IF_ERROR(CheckSync(*this));
    EMBLA_RETURN_IF_ERROR(CheckZch(*this));
    if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
      return absl::InvalidArgumentError("dtype of a table is one of fp32, fp16, bf16");
    }
    EMBLA_RETURN_IF_ERROR(CheckKnown("rounding", rounding));
    EMBLA_RETURN_IF_ERROR(CheckKnown("bounds", bounds));
    EMBLA_RETURN_IF_ERROR(CheckKnown("nan_policy", nan_policy));
    EMBLA_RETURN_IF_ERROR(CheckCallers(callers));
    EMBLA_RETURN_IF_ERROR(CheckRange("lookups_per_sample", lookups_per_sample, 0.0f, 1e9f));
    EMBLA_RETURN_IF_ERROR(optimizer.Validate());
    return init.Validate();
  };
  return Annotate(check(), "table " + name);
}

std::int64_t TableSpec::RowGranuleBegin(std::uint32_t granule) const {
  return static_cast<std::int64_t>(granule) * rows / row_granules;  // Below 2^60 by Validate.
}

std::uint32_t TableSpec::ColumnGranuleBegin(std::uint32_t granule) const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{granule} * column_granule_width, dim));
}

bool TableSpec::IsRowBorder(std::int64_t row) const {
  if (row < 0 || row > rows) return false;
  // The first granule that begins at or after `row`.
  const std::int64_t granule = (row * row_granules + rows - 1) / rows;
  return RowGranuleBegin(static_cast<std::uint32_t>(granule)) == row;
}

bool TableSpec::IsColumnBorder(std::uint32_t column) const {
  return column == dim || (column < dim && column % column_granule_width == 0);
}

std::int64_t TableSpec::WeightBytesPerRow() const {
  return static_cast<std::int64_t>(RowBytes(dtype, dim));
}

std::int64_t TableSpec::StateBytesPerRow() const {
  return 4 * static_cast<std::int64_t>(StateShapeOf(optimizer).Floats(dim));
}

std::uint32_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt8Rowwise:
      return 1;
  }
  return 0;
}

std::size_t RowBytes(DType dtype, std::uint32_t columns) {
  const std::size_t header = dtype == DType::kInt8Rowwise ? 8 : 0;
  return header + std::size_t{ElementBytes(dtype)} * columns;
}

StateShape StateShapeOf(const OptimizerSpec& optimizer) { return TraitsOf(optimizer.kind).state; }

bool NeedsRowStatistic(const OptimizerSpec& optimizer) {
  return TraitsOf(optimizer.kind).needs_row_statistic;
}

}  // namespace embla
