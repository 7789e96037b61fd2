// One checked input of a call: jagged ids into one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/embla/client.h"
#include "client/route/group_choice.h"
#include "client/route/table_route.h"
#include "core/base/ids.h"
#include "core/plan/table_spec.h"
#include "kernels/row_kernels.h"

namespace embla::client {

// Lengths are never given for Pooling::kNone, and always otherwise.
struct Feature {
  TableId table{};
  std::uint32_t dim = 0;
  std::uint32_t replica_group = 0;  // The copy of the table that is read.
  Pooling pooling = Pooling::kNone;
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> lengths;
  std::span<const float> weights;
  std::size_t stride = 0;  // Floats from one row of values to the next.
  // Storage of `lengths` if the caller gave offsets.
  std::vector<std::uint32_t> lengths_from_offsets;

  // Rows of the lookup's answer and of the update's gradients.
  std::size_t rows() const { return pooling == Pooling::kNone ? ids.size() : lengths.size(); }
};

// The arguments of one feature, and how many floats belong to it.
struct FeatureArguments {
  std::string_view table;
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> lengths;
  std::span<const std::int64_t> offsets;
  std::span<const float> weights;
  Pooling pooling = Pooling::kNone;
  std::size_t value_count = 0;
  std::size_t stride = 0;        // 0: dim.
  std::string_view values_name;  // "rows_out" or "gradients", for messages.
};

FeatureArguments ArgumentsOf(const FeatureLookup& feature);
FeatureArguments ArgumentsOf(const FeatureGradient& feature);

// Errors: NotFound (no such table), InvalidArgument (sizes, offsets, weights, replica group; says
// which feature of the call it was, counted from 0).
absl::StatusOr<Feature> CheckFeature(const Routes& routes, const FeatureArguments& arguments,
                                     std::size_t position, const GroupChoice& groups = {});

constexpr DType DTypeOf(WireFormat wire) { return static_cast<DType>(wire); }
constexpr kernels::Element ElementOf(DType dtype) { return static_cast<kernels::Element>(dtype); }
static_assert(DTypeOf(WireFormat::kFp32) == DType::kFloat32);
static_assert(DTypeOf(WireFormat::kFp16) == DType::kFloat16);
static_assert(DTypeOf(WireFormat::kBf16) == DType::kBFloat16);
static_assert(DTypeOf(WireFormat::kInt8) == DType::kInt8Rowwise);
static_assert(ElementOf(DType::kFloat32) == kernels::Element::kFloat32);
static_assert(ElementOf(DType::kInt8Rowwise) == kernels::Element::kInt8Rowwise);

}  // namespace embla::client
