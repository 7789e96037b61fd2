// What does an example cost in the plainest program that trains embla-train's model?
//
// One thread, arrays in this process, one step of row-wise Adagrad per example and row: no batches,
// no service. bench/train_cost.py sets the CPU seconds of embla-train and its servers beside it.
// Usage: train_loop_bench TRAIN TEST EPOCHS; prints the figures as JSON.
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <vector>

#include "core/base/check.h"
#include "tools/train/inputs.h"
#include "tools/train/metrics.h"
#include "tools/train/model_tables.h"
#include "tools/train/process_cpu.h"
#include "tools/train/random.h"

namespace embla::train {
namespace {

constexpr std::size_t kDim = 8;
constexpr float kLearningRate = 0.1f;
constexpr float kInitialAccumulator = 3.0f;
constexpr float kEpsilon = 1e-8f;
constexpr float kInitialDeviation = 0.01f;

class PlainModel {
 public:
  PlainModel(const ModelLayout& layout, double prior)
      : base_(layout.base),
        prior_(prior),
        linear_(layout.pairs.front().rows),
        linear_squares_(linear_.size(), kInitialAccumulator),
        factors_(linear_.size() * kDim),
        factor_squares_(linear_.size(), kInitialAccumulator) {
    Random random(1);
    for (float& factor : factors_) {
      factor = kInitialDeviation * static_cast<float>(random.Normal());
    }
  }

  // Leaves the sums of factors in sums_.
  float Score(std::span<const std::int64_t> selected) {
    double score = prior_;
    float squares = 0.0f;
    std::fill_n(sums_, kDim, 0.0f);
    for (std::size_t c = 0; c < selected.size(); ++c) {
      const std::size_t row = base_[c] + selected[c];
      score += linear_[row];
      const float* v = factors_.data() + row * kDim;
      for (std::size_t j = 0; j < kDim; ++j) {
        sums_[j] += v[j];
        squares += v[j] * v[j];
      }
    }
    float squared_sums = 0.0f;
    for (const float sum : sums_) squared_sums += sum * sum;
    return static_cast<float>(score + 0.5 * (squared_sums - squares));
  }

  void Train(std::span<const std::int64_t> selected, float label) {
    const float slope = 1.0f / (1.0f + std::exp(-Score(selected))) - label;
    for (std::size_t c = 0; c < selected.size(); ++c) {
      const std::size_t row = base_[c] + selected[c];
      linear_squares_[row] += slope * slope;
      linear_[row] -= kLearningRate * slope / (std::sqrt(linear_squares_[row]) + kEpsilon);
      float* v = factors_.data() + row * kDim;
      float gradient[kDim];
      float squares = 0.0f;
      for (std::size_t j = 0; j < kDim; ++j) {
        gradient[j] = slope * (sums_[j] - v[j]);
        squares += gradient[j] * gradient[j];
      }
      factor_squares_[row] += squares / kDim;
      const float step = kLearningRate / (std::sqrt(factor_squares_[row]) + kEpsilon);
      for (std::size_t j = 0; j < kDim; ++j) v[j] -= step * gradient[j];
    }
  }

 private:
  const std::vector<std::int64_t> base_;
  const double prior_;
  std::vector<float> linear_;
  std::vector<float> linear_squares_;
  std::vector<float> factors_;
  std::vector<float> factor_squares_;
  float sums_[kDim] = {};
};

Examples ReadAll(ExampleSource& source) {
  Examples examples;
  EMBLA_CHECK(source.Read(std::size_t{1} << 30, examples).ok());
  return examples;
}

int Main(char** argv) {
  InputOptions options;
  options.train_path = argv[1];
  options.test_path = argv[2];
  const int epochs = std::atoi(argv[3]);
  std::ostringstream found;
  auto inputs = OpenInputs(options, found);
  if (!inputs.ok()) {
    std::cerr << inputs.status() << "\n";
    return 2;
  }
  const Examples train = ReadAll(*inputs->train);
  const Examples test = ReadAll(*inputs->test);
  const ModelLayout layout = LayoutOf(ModelKind::kFm, "plain", inputs->train->columns(), kDim);
  const double ones = std::accumulate(train.labels.begin(), train.labels.end(), 0.0);
  PlainModel model(layout, PriorOf(Loss::kLogistic, ones / static_cast<double>(train.size())));

  std::vector<std::uint32_t> order(train.size());
  std::iota(order.begin(), order.end(), 0u);
  const ProcessCpu cpu;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    Random(epoch).Shuffle(std::span(order));
    for (const std::uint32_t e : order) model.Train(train.RowsOf(e), train.labels[e]);
  }
  const double seconds = cpu.Seconds();

  std::vector<float> scores(test.size());
  for (std::size_t e = 0; e < test.size(); ++e) scores[e] = model.Score(test.RowsOf(e));
  const auto examples = static_cast<double>(train.size()) * epochs;
  std::cout << nlohmann::ordered_json{{"examples", examples},
                                      {"cpu_seconds", seconds},
                                      {"auc", AreaUnderCurve(scores, test.labels).value_or(0.0)},
                                      {"logloss", LogLoss(scores, test.labels).value_or(0.0)}}
            << "\n";
  return 0;
}

}  // namespace
}  // namespace embla::train

int main(int argc, char** argv) {
  if (argc == 4) return embla::train::Main(argv);
  std::cerr << "usage: " << argv[0] << " TRAIN TEST EPOCHS\n";
  return 2;
}
