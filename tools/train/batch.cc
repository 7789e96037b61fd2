#include "tools/train/batch.h"

#include <memory>
#include <utility>

#include "core/base/check.h"

namespace embla::train {

client::DoneCallback PendingCall::Begin() {
  EMBLA_CHECK(!pending());
  auto promise = std::make_shared<std::promise<absl::Status>>();
  done_ = promise->get_future();
  return [promise](absl::Status status) { promise->set_value(std::move(status)); };
}

absl::Status PendingCall::Wait() { return pending() ? done_.get() : absl::OkStatus(); }

void Batch::Fill(const Examples& examples, std::span<const std::uint32_t> order) {
  EMBLA_CHECK(examples.columns == layout_.columns);
  const std::size_t count = order.size();
  labels_.resize(count);
  for (std::size_t e = 0; e < count; ++e) labels_[e] = examples.labels[order[e]];
  slots_.resize(count * layout_.columns);
  ids_.clear();
  pair_begins_.assign(1, 0);
  for (const TablePair& pair : layout_.pairs) {
    FindSlots(pair, examples, order);
    pair_begins_.push_back(ids_.size());
  }
  linear_.resize(ids_.size());
  linear_gradients_.resize(ids_.size());
  factors_.resize(ids_.size() * layout_.dim);
  factor_gradients_.resize(ids_.size() * layout_.dim);
  factor_sums_.resize(count * layout_.dim);
  scores_.resize(count);
  slopes_.resize(count);
}

// Gives every id that the examples select in the pair's columns one slot.
void Batch::FindSlots(const TablePair& pair, const Examples& examples,
                      std::span<const std::uint32_t> order) {
  finder_.Begin(pair.rows);
  for (std::size_t e = 0; e < order.size(); ++e) {
    const std::span<const std::int64_t> selected = examples.RowsOf(order[e]);
    for (std::size_t c = pair.first_column; c < pair.first_column + pair.columns; ++c) {
      const std::int64_t id = layout_.base[c] + selected[c];
      const auto next = static_cast<std::uint32_t>(ids_.size());
      const std::uint32_t slot = finder_.Find(id, next);
      if (slot == next) ids_.push_back(id);
      slots_[e * layout_.columns + c] = slot;
    }
  }
}

std::vector<client::FeatureLookup> Batch::Lookups() {
  std::vector<client::FeatureLookup> features;
  for (std::size_t p = 0; p < layout_.pairs.size(); ++p) {
    const std::size_t begin = pair_begins_[p];
    const std::size_t count = pair_begins_[p + 1] - begin;
    client::FeatureLookup feature;
    feature.ids = {ids_.data() + begin, count};
    feature.table = layout_.pairs[p].linear;
    feature.rows_out = {linear_.data() + begin, count};
    features.push_back(feature);
    feature.table = layout_.pairs[p].factors;
    feature.rows_out = {factors_.data() + begin * layout_.dim, count * layout_.dim};
    features.push_back(feature);
  }
  return features;
}

std::vector<client::FeatureGradient> Batch::Gradients() const {
  std::vector<client::FeatureGradient> features;
  for (std::size_t p = 0; p < layout_.pairs.size(); ++p) {
    const std::size_t begin = pair_begins_[p];
    const std::size_t count = pair_begins_[p + 1] - begin;
    client::FeatureGradient feature;
    feature.pooling = client::Pooling::kNone;
    feature.ids = {ids_.data() + begin, count};
    feature.table = layout_.pairs[p].linear;
    feature.gradients = {linear_gradients_.data() + begin, count};
    features.push_back(feature);
    feature.table = layout_.pairs[p].factors;
    feature.gradients = {factor_gradients_.data() + begin * layout_.dim, count * layout_.dim};
    features.push_back(feature);
  }
  return features;
}

std::span<const float> Batch::Score(double prior) {
  FmScores(rows(), prior, factor_sums_, scores_);
  return scores_;
}

double Batch::Differentiate(Loss loss, float gradient_scale) {
  double sum = 0.0;
  for (std::size_t e = 0; e < size(); ++e) {
    const LossAndSlope result = LossOf(loss, scores_[e], labels_[e]);
    sum += result.loss;
    slopes_[e] = static_cast<float>(result.slope) * gradient_scale;
  }
  FmGradients(rows(), slopes_, factor_sums_, linear_gradients_, factor_gradients_);
  return sum;
}

}  // namespace embla::train
