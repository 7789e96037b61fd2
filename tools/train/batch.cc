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
  const std::size_t rows = count * layout_.columns;
  labels_.resize(count);
  ids_.resize(rows);
  linear_.resize(rows);
  linear_gradients_.resize(rows);
  factors_.resize(rows * layout_.dim);
  factor_gradients_.resize(rows * layout_.dim);
  factor_sums_.resize(count * layout_.dim);
  scores_.resize(count);
  slopes_.resize(count);
  for (std::size_t e = 0; e < count; ++e) {
    const std::span<const std::int64_t> selected = examples.RowsOf(order[e]);
    labels_[e] = examples.labels[order[e]];
    for (std::size_t c = 0; c < layout_.columns; ++c) {
      ids_[c * count + e] = layout_.base[c] + selected[c];
    }
  }
}

std::vector<client::FeatureLookup> Batch::Lookups() {
  std::vector<client::FeatureLookup> features;
  for (const TablePair& pair : layout_.pairs) {
    const std::size_t begin = pair.first_column * size();
    const std::size_t count = pair.columns * size();
    const std::span<const std::int64_t> ids(ids_.data() + begin, count);
    client::FeatureLookup feature;
    feature.ids = ids;
    feature.table = pair.linear;
    feature.rows_out = {linear_.data() + begin, count};
    features.push_back(feature);
    feature.table = pair.factors;
    feature.rows_out = {factors_.data() + begin * layout_.dim, count * layout_.dim};
    features.push_back(feature);
  }
  return features;
}

std::vector<client::FeatureGradient> Batch::Gradients() const {
  std::vector<client::FeatureGradient> features;
  for (const TablePair& pair : layout_.pairs) {
    const std::size_t begin = pair.first_column * size();
    const std::size_t count = pair.columns * size();
    client::FeatureGradient feature;
    feature.pooling = client::Pooling::kNone;
    feature.ids = {ids_.data() + begin, count};
    feature.table = pair.linear;
    feature.gradients = {linear_gradients_.data() + begin, count};
    features.push_back(feature);
    feature.table = pair.factors;
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
