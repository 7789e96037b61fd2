#include "client/python/native/calls.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::python {
namespace {

// A call in flight needs this beside the caller's arrays.
struct CallMemory {
  std::shared_ptr<const FeatureSet> features;
  PackedParts cut;
};

template <typename Call>
absl::StatusOr<std::shared_ptr<CallMemory>> Prepare(const Call& call) {
  auto memory = std::make_shared<CallMemory>();
  memory->features = call.features;
  EMBLA_ASSIGN_OR_RETURN(memory->cut, CutIntoFeatures(*call.features, call.input, call.shape));
  return memory;
}

// Keeps `memory` until the call is over.
client::DoneCallback SetWhenDone(std::shared_ptr<CallMemory> memory,
                                 std::shared_ptr<Completion> completion) {
  return [memory = std::move(memory), completion = std::move(completion)](absl::Status status) {
    completion->Set(std::move(status));
  };
}

// The floats of one feature's rows: from its first to the end of its last.
template <typename Scalar>
std::span<Scalar> RowsOf(const FeaturePart& part, std::size_t dim, Scalar* all) {
  if (part.rows == 0) return {};
  return {all + part.first, (part.rows - 1) * part.stride + dim};
}

}  // namespace

absl::Status Start(client::Client& client, const PackedLookup& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion) {
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<CallMemory> memory, Prepare(call));
  std::vector<client::FeatureLookup> lookups;
  lookups.reserve(memory->cut.parts.size());
  for (std::size_t f = 0; f < memory->cut.parts.size(); ++f) {
    const FeatureSet::Feature& feature = call.features->features()[f];
    const FeaturePart& part = memory->cut.parts[f];
    lookups.push_back({.table = feature.table,
                       .ids = part.ids,
                       .lengths = part.lengths,
                       .weights = part.weights,
                       .pooling = feature.pooling,
                       .rows_out = RowsOf(part, feature.dim, call.rows),
                       .rows_out_stride = part.stride});
  }
  client.LookupAsync(std::move(lookups), options, SetWhenDone(memory, std::move(completion)));
  return absl::OkStatus();
}

absl::Status Start(client::Client& client, const PackedUpdate& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion) {
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<CallMemory> memory, Prepare(call));
  const std::size_t count = memory->cut.parts.size();
  if (!call.learning_rates.empty() && call.learning_rates.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(call.learning_rates.size(), " learning rates for ", count, " features"));
  }
  std::vector<client::FeatureGradient> gradients;
  gradients.reserve(count);
  for (std::size_t f = 0; f < count; ++f) {
    const FeatureSet::Feature& feature = call.features->features()[f];
    const FeaturePart& part = memory->cut.parts[f];
    gradients.push_back({.table = feature.table,
                         .ids = part.ids,
                         .lengths = part.lengths,
                         .weights = part.weights,
                         .pooling = feature.pooling,
                         .gradients = RowsOf(part, feature.dim, call.gradients),
                         .gradients_stride = part.stride});
    if (!call.learning_rates.empty()) {
      gradients.back().learning_rate = call.learning_rates[f];
    }
  }
  client.UpdateAsync(std::move(gradients), options, SetWhenDone(memory, std::move(completion)));
  return absl::OkStatus();
}

}  // namespace embla::python
