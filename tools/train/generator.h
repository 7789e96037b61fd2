// Examples drawn from a planted factorization machine, so that a run can be judged: no model ranks
// better than the planted scores themselves.
//
// Every example, weight and factor is a function of the seed and its own number, hence nothing is
// stored and several processes draw the same examples. Popularity within a column is skewed: row r
// of R is drawn when floor(R * u^3) == r, u uniform.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tools/train/examples.h"
#include "tools/train/fm.h"

namespace embla::train {

struct GeneratorOptions {
  std::uint64_t examples = 0;
  std::uint64_t first_example = 0;  // Sources with disjoint ranges share one truth.
  std::uint32_t columns = 8;        // At least 2.
  std::uint32_t rows_per_column = 1000;
  Loss loss = Loss::kLogistic;  // kSquared: ratings around 3.5 with noise of 0.5.
  std::uint64_t seed = 1;
};

// Fills planted_scores. Thread safety: one thread at a time.
class Generator final : public ExampleSource {
 public:
  explicit Generator(const GeneratorOptions& options);

  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Restart() override;
  absl::Status Read(std::size_t count, Examples& out) override;

 private:
  void Draw(std::uint64_t number, Examples& out) const;
  double ScoreOf(std::span<const std::int64_t> rows) const;

  const GeneratorOptions options_;
  std::vector<Column> columns_;
  std::uint64_t next_ = 0;
};

}  // namespace embla::train
