// One mini-batch on its way: ids, the rows that came back, and the gradients that go out.
#pragma once

#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/train/examples.h"
#include "tools/train/fm.h"
#include "tools/train/model_tables.h"
#include "tools/train/slot_finder.h"

namespace embla::train {

// The result of a call with a DoneCallback.
class PendingCall {
 public:
  // Hand this to the call. Requires: no call is pending.
  client::DoneCallback Begin();
  bool pending() const { return done_.valid(); }
  // Waits for the call; OK when none is pending.
  absl::Status Wait();

 private:
  std::future<absl::Status> done_;
};

// Thread safety: one thread at a time. Calls in flight use its arrays: wait for them before Fill
// and before it is destroyed.
class Batch {
 public:
  // Not owned; both outlive this object. Batches of one thread may share a finder.
  Batch(const ModelLayout& layout, SlotFinder& finder) : layout_(layout), finder_(finder) {}

  // Takes these examples and forgets the last ones.
  void Fill(const Examples& examples, std::span<const std::uint32_t> order);

  // Two features per pair of tables, no id twice in any. The spans are into this object.
  std::vector<client::FeatureLookup> Lookups();
  std::vector<client::FeatureGradient> Gradients() const;

  // After the lookups: scores, one per example.
  std::span<const float> Score(double prior);
  // After Score: the sum of the losses; fills the gradients of `gradient_scale` x loss.
  double Differentiate(Loss loss, float gradient_scale);

  std::size_t size() const { return labels_.size(); }

 private:
  FmRows rows() const {
    return {{size(), layout_.columns, layout_.dim}, slots_, linear_, factors_};
  }
  void FindSlots(const TablePair& pair, const Examples& examples,
                 std::span<const std::uint32_t> order);

  const ModelLayout& layout_;
  SlotFinder& finder_;
  std::vector<float> labels_;
  // The rows of a pair of tables lie together, see fm.h; pair p's begin at slot pair_begins_[p].
  std::vector<std::uint32_t> slots_;
  std::vector<std::size_t> pair_begins_;  // Slots where pairs begin, and the end of the last pair.
  std::vector<std::int64_t> ids_;         // Ids of the slots.
  std::vector<float> linear_;
  std::vector<float> factors_;
  std::vector<float> linear_gradients_;
  std::vector<float> factor_gradients_;
  std::vector<float> factor_sums_;
  std::vector<float> scores_;
  std::vector<float> slopes_;
};

}  // namespace embla::train
