// The training data in chunks, without the examples that are held back for validation.
//
// All of it is one chunk when it fits; else it is read anew in every epoch. Whether an example is
// held back is a function of the seed and its position in the input: the same in every epoch and in
// every process. They are collected on the first pass and complete at its end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tools/train/examples.h"

namespace embla::train {

struct ChunkOptions {
  std::size_t chunk_max = std::size_t{1} << 23;  // Examples in memory at a time.
  double validation_fraction = 0.0;
  std::size_t validation_max = std::size_t{1} << 20;  // Further examples are trained on.
  std::uint64_t seed = 1;
};

// Thread safety: one thread at a time.
class ChunkReader {
 public:
  // `source` is not owned and outlives this object.
  ChunkReader(ExampleSource& source, const ChunkOptions& options)
      : source_(source), options_(options) {}

  // Before anything else. InvalidArgument: there is nothing to train on.
  absl::Status LoadFirst();
  // Makes chunk() the first one of another epoch.
  absl::Status BeginEpoch();
  // Makes chunk() the next one of this epoch.
  absl::Status Advance();
  // There is no chunk any more in this epoch.
  bool at_end() const { return at_end_; }
  const Examples& chunk() const { return chunk_; }
  // Returns the examples held back so far.
  const Examples& validation() const { return validation_; }
  // Examples of one epoch; 0: not known.
  std::size_t total() const { return holds_all_ ? chunk_.size() : 0; }

 private:
  absl::Status Load();
  void HoldBack();
  bool IsHeldBack(std::uint64_t position) const;

  ExampleSource& source_;
  const ChunkOptions options_;
  Examples chunk_;
  Examples validation_;
  std::uint64_t position_ = 0;    // Position of the next example in the input.
  std::size_t held_back_ = 0;     // On this pass.
  bool validation_done_ = false;  // The first pass is over.
  bool holds_all_ = false;
  bool is_first_ = true;
  bool at_end_ = false;
};

}  // namespace embla::train
