#include "client/python/native/calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"

namespace embla::python {
namespace {

// What a call in flight needs beside the caller's arrays.
struct CallMemory {
  std::shared_ptr<const FeatureSet> features;
  PackedParts cut;
  std::vector<std::vector<float>> staged;  // Per feature: its rows without gaps, or nothing.
};

bool HasGaps(const FeaturePart& part, std::size_t dim) {
  return part.stride != dim && part.rows > 1;
}

// Rows with gaps between them, from and to rows without.
void CopyRows(const float* from, std::size_t from_stride, float* to, std::size_t to_stride,
              std::size_t rows, std::size_t dim) {
  for (std::size_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * from_stride, dim, to + r * to_stride);
  }
}

template <typename Call>
absl::StatusOr<std::shared_ptr<CallMemory>> Prepare(const Call& call) {
  auto memory = std::make_shared<CallMemory>();
  memory->features = call.features;
  EMBLA_ASSIGN_OR_RETURN(memory->cut, CutIntoFeatures(*call.features, call.input, call.shape));
  memory->staged.resize(memory->cut.parts.size());
  return memory;
}

}  // namespace

absl::Status Start(client::Client& client, const PackedLookup& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion) {
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<CallMemory> memory, Prepare(call));
  std::vector<client::FeatureLookup> lookups;
  for (std::size_t f = 0; f < memory->cut.parts.size(); ++f) {
    const FeatureSet::Feature& feature = call.features->features()[f];
    const FeaturePart& part = memory->cut.parts[f];
    std::span<float> rows(call.rows + part.first, part.rows * feature.dim);
    if (HasGaps(part, feature.dim)) {
      memory->staged[f].resize(rows.size());
      rows = memory->staged[f];
    }
    lookups.push_back({.table = feature.table,
                       .ids = part.ids,
                       .lengths = part.lengths,
                       .weights = part.weights,
                       .pooling = feature.pooling,
                       .rows_out = rows});
  }
  const auto done = [memory, rows = call.rows,
                     completion = std::move(completion)](absl::Status status) {
    for (std::size_t f = 0; status.ok() && f < memory->staged.size(); ++f) {
      if (memory->staged[f].empty()) continue;
      const FeaturePart& part = memory->cut.parts[f];
      const std::size_t dim = memory->features->features()[f].dim;
      CopyRows(memory->staged[f].data(), dim, rows + part.first, part.stride, part.rows, dim);
    }
    completion->Set(std::move(status));
  };
  client.LookupAsync(std::move(lookups), options, done);
  return absl::OkStatus();
}

absl::Status Start(client::Client& client, const PackedUpdate& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion) {
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<CallMemory> memory, Prepare(call));
  if (!call.learning_rates.empty()) {
    return absl::UnimplementedError("learning_rates: this build of the client has none per update");
  }
  std::vector<client::FeatureGradient> gradients;
  for (std::size_t f = 0; f < memory->cut.parts.size(); ++f) {
    const FeatureSet::Feature& feature = call.features->features()[f];
    const FeaturePart& part = memory->cut.parts[f];
    std::span<const float> values(call.gradients + part.first, part.rows * feature.dim);
    if (HasGaps(part, feature.dim)) {
      memory->staged[f].resize(values.size());
      CopyRows(values.data(), part.stride, memory->staged[f].data(), feature.dim, part.rows,
               feature.dim);
      values = memory->staged[f];
    }
    gradients.push_back({.table = feature.table,
                         .ids = part.ids,
                         .lengths = part.lengths,
                         .weights = part.weights,
                         .pooling = feature.pooling,
                         .gradients = values});
  }
  client.UpdateAsync(std::move(gradients), options,
                     [memory, completion = std::move(completion)](absl::Status status) {
                       completion->Set(std::move(status));
                     });
  return absl::OkStatus();
}

}  // namespace embla::python
