// Lookups and updates over packed arrays, started without waiting. Nothing of Python in here.
#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "client/python/native/completion.h"
#include "client/python/native/features.h"
#include "embla/client.h"

namespace embla::python {

// Arrays of the caller, which stay valid until `completion` is set.
struct PackedLookup {
  std::shared_ptr<const FeatureSet> features;
  PackedIds input;
  PackedRows shape;
  float* rows = nullptr;
};
struct PackedUpdate {
  std::shared_ptr<const FeatureSet> features;
  PackedIds input;
  PackedRows shape;
  const float* gradients = nullptr;
  std::span<const float> learning_rates = {};  // Empty, or one per feature.
};

// InvalidArgument where the arrays do not fit together; nothing is sent then, and `completion` is
// not set.
absl::Status Start(client::Client& client, const PackedLookup& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion);
absl::Status Start(client::Client& client, const PackedUpdate& call,
                   const client::CallOptions& options, std::shared_ptr<Completion> completion);

}  // namespace embla::python
