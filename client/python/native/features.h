// The features of a packed call, and how its arrays are cut into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "embla/client.h"

namespace embla::python {

// The features of a module, in the order of its arrays. Immutable.
class FeatureSet {
 public:
  struct Feature {
    std::string table;
    client::Pooling pooling = client::Pooling::kNone;
    std::uint32_t dim = 0;
    std::size_t column = 0;  // First column of this feature in a pooled batch.
  };

  // Columns are given in the order of `features`. InvalidArgument: no feature, a dim of 0, pooled
  // features together with unpooled ones, or unpooled features of several dims.
  static absl::StatusOr<FeatureSet> Make(std::vector<Feature> features);

  std::span<const Feature> features() const { return features_; }
  std::size_t columns() const { return columns_; }  // The sum of all dims.
  bool pooled() const { return features_.front().pooling != client::Pooling::kNone; }

 private:
  explicit FeatureSet(std::vector<Feature> features) : features_(std::move(features)) {}

  std::vector<Feature> features_;
  std::size_t columns_ = 0;
};

// The ids of all features, one feature's after another's.
struct PackedIds {
  std::span<const std::int64_t> ids;
  // One per bag. 32 bits: signed or not, a negative one is an error; 64 bits are copied.
  std::variant<std::span<const std::uint32_t>, std::span<const std::int64_t>> lengths;
  std::span<const float> weights = {};             // Empty, or one per id.
  std::span<const std::int64_t> batch_sizes = {};  // Empty: equal ones; else bags per feature.
};

// The rows of a packed call as an array of floats: row r begins at data + r * stride.
struct PackedRows {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t stride = 0;
  bool flat = false;  // One dimension: blocks of [bags, dim], one feature's after another's.
};

// One feature's share of the arrays.
struct FeaturePart {
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> lengths;
  std::span<const float> weights;
  std::size_t first = 0;   // The float where its rows begin.
  std::size_t rows = 0;    // Bags, or ids of an unpooled feature.
  std::size_t stride = 0;  // Floats from row to row.
};

struct PackedParts {
  std::vector<FeaturePart> parts;             // One per feature.
  std::vector<std::uint32_t> copied_lengths;  // `parts` points here where lengths have 64 bits.
};

// Cuts a call by the sums of its lengths. InvalidArgument says which sizes disagree.
absl::StatusOr<PackedParts> CutIntoFeatures(const FeatureSet& features, const PackedIds& input,
                                            const PackedRows& rows);

}  // namespace embla::python
