#include "tools/train/generator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "tools/train/random.h"

namespace embla::train {
namespace {

constexpr std::size_t kPlantedDim = 4;
constexpr double kRatingMean = 3.5;
constexpr double kRatingNoise = 0.5;

// Standard deviations of planted weights; they give a planted AUC of about 0.88.
struct Spread {
  double linear;
  double factor;
};
constexpr Spread kClickSpread = {0.4, 0.45};
constexpr Spread kRatingSpread = {0.4, 0.5};

enum Stream : std::uint64_t { kExampleStream = 1, kTruthStream = 2 };

Random RandomFor(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b) {
  return Random(SplitMix64(SplitMix64(SplitMix64(seed) ^ stream) ^ a) ^ b);
}

}  // namespace

Generator::Generator(const GeneratorOptions& options) : options_(options) {
  EMBLA_CHECK(options.columns >= 2 && options.rows_per_column >= 1);
  const bool ratings = options.loss == Loss::kSquared && options.columns == 2;
  for (std::uint32_t i = 0; i < options.columns; ++i) {
    const std::string name = ratings ? (i == 0 ? "user" : "item") : absl::StrCat("column", i);
    columns_.push_back({name, options.rows_per_column, "generated"});
  }
}

absl::Status Generator::Restart() {
  next_ = 0;
  return absl::OkStatus();
}

absl::Status Generator::Read(std::size_t count, Examples& out) {
  out.columns = columns_.size();
  const std::uint64_t end = next_ + std::min<std::uint64_t>(count, options_.examples - next_);
  for (; next_ < end; ++next_) Draw(options_.first_example + next_, out);
  return absl::OkStatus();
}

void Generator::Draw(std::uint64_t number, Examples& out) const {
  Random random = RandomFor(options_.seed, kExampleStream, number, 0);
  const std::size_t first = out.rows.size();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const double u = random.Uniform();
    out.rows.push_back(static_cast<std::int64_t>(options_.rows_per_column * u * u * u));
  }
  double score = ScoreOf({out.rows.data() + first, columns_.size()});
  float label = 0.0f;
  if (options_.loss == Loss::kSquared) {
    score += kRatingMean;
    label = static_cast<float>(score + kRatingNoise * random.Normal());
  } else {
    label = random.Uniform() < 1.0 / (1.0 + std::exp(-score)) ? 1.0f : 0.0f;
  }
  out.labels.push_back(label);
  out.planted_scores.push_back(static_cast<float>(score));
}

double Generator::ScoreOf(std::span<const std::int64_t> rows) const {
  const Spread spread = options_.loss == Loss::kSquared ? kRatingSpread : kClickSpread;
  std::array<double, kPlantedDim> sums = {};
  double score = 0.0;
  double squares = 0.0;
  for (std::size_t c = 0; c < rows.size(); ++c) {
    Random truth = RandomFor(options_.seed, kTruthStream, c, static_cast<std::uint64_t>(rows[c]));
    score += spread.linear * truth.Normal();
    for (double& sum : sums) {
      const double factor = spread.factor * truth.Normal();
      sum += factor;
      squares += factor * factor;
    }
  }
  double squared_sums = 0.0;
  for (const double sum : sums) squared_sums += sum * sum;
  return score + 0.5 * (squared_sums - squares);
}

}  // namespace embla::train
