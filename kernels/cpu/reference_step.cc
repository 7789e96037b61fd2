// The oracle's optimizer step: the formulas of optimizer_step.h, one element at a time.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/random.h"
#include "kernels/step_scalars.h"

namespace embla::kernels::reference {
namespace {

// One row in hand.
struct Row {
  std::vector<float> w;
  const float* g;
  float* scalar;    // Null where the rule has none.
  float* elements;  // Likewise.
};

void StepSgd(const StepParameters& p, Row& row) {
  const float keep = 1.0f - p.learning_rate * p.decoupled;
  for (std::size_t c = 0; c < row.w.size(); ++c) {
    row.w[c] = keep * row.w[c] - p.learning_rate * (row.g[c] + p.l2 * row.w[c]);
  }
}

void StepRowwiseAdagrad(const StepParameters& p, float dim, const float* sum_squares, Row& row) {
  float sum = 0.0f;
  if (sum_squares != nullptr && p.l2 == 0.0f) {
    sum = *sum_squares;
  } else {
    std::vector<float> h(row.w.size());
    for (std::size_t c = 0; c < h.size(); ++c) {
      h[c] = p.l2 == 0.0f ? row.g[c] : row.g[c] + p.l2 * row.w[c];
    }
    const auto columns = static_cast<std::uint32_t>(h.size());
    RowSumSquares({h.data(), 4 * h.size(), columns, Element::kFloat32}, {&sum, 1});
  }
  *row.scalar = *row.scalar + sum / dim;
  const float mu = p.learning_rate / (std::sqrt(*row.scalar) + p.eps);
  const float kept = (1.0f - p.learning_rate * p.decoupled) - mu * p.l2;
  for (std::size_t c = 0; c < row.w.size(); ++c) row.w[c] = kept * row.w[c] - mu * row.g[c];
}

void StepAdagrad(const StepParameters& p, Row& row) {
  const float keep = 1.0f - p.learning_rate * p.decoupled;
  for (std::size_t c = 0; c < row.w.size(); ++c) {
    const float h = row.g[c] + p.l2 * row.w[c];
    float& a = row.elements[c];
    a = a + h * h;
    row.w[c] = keep * row.w[c] - (p.learning_rate * h) / (std::sqrt(a) + p.eps);
  }
}

void StepAdam(const StepParameters& p, std::uint64_t step, Row& row) {
  *row.scalar = NextStepCount(*row.scalar);
  std::uint64_t t = static_cast<std::uint64_t>(*row.scalar);
  if (p.t_is_step) t = step == 0 ? 1 : step;
  const float c1 = BiasCorrectionOf(p.beta1, t);
  const float c2 = BiasCorrectionOf(p.beta2, t);
  for (std::size_t c = 0; c < row.w.size(); ++c) {
    float& m = row.elements[c];
    float& v = row.elements[row.w.size() + c];
    const float w = row.w[c];
    const float h = row.g[c] + p.l2 * w;
    m = p.beta1 * m + (1.0f - p.beta1) * h;
    v = p.beta2 * v + (1.0f - p.beta2) * (h * h);
    const float direction = (m / c1) / (std::sqrt(v / c2) + p.eps);
    row.w[c] = w - p.learning_rate * (direction + p.decoupled * w);
  }
}

void StoreWeights(const StepParameters& p, const StepRows& rows, std::uint64_t step,
                  std::uint32_t slot, const Row& row) {
  auto* const target =
      static_cast<std::byte*>(rows.weights.base) + slot * rows.weights.stride_bytes;
  if (!p.stochastic || rows.weights.element == Element::kFloat32) {
    return EncodeRow(row.w, rows.weights.element, target);
  }
  const std::uint64_t key =
      RowKey(BatchKey(RandomPurpose::kRound, p.seed, step, p.table_id), rows.first_row + slot);
  for (std::size_t c = 0; c < row.w.size(); ++c) {
    const std::uint32_t random = RandomBits(key, rows.column_begin + static_cast<std::uint32_t>(c));
    const std::uint16_t half = RoundStochastic(row.w[c], rows.weights.element, random);
    std::memcpy(target + 2 * c, &half, 2);
  }
}

}  // namespace

void Step(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch) {
  const std::size_t columns = rows.weights.columns;
  const std::size_t arrays = ElementStateArrays(parameters.rule);
  for (std::size_t i = 0; i < batch.slots.size(); ++i) {
    const std::uint32_t slot = batch.slots[i];
    const auto* const weights =
        static_cast<const std::byte*>(rows.weights.base) + slot * rows.weights.stride_bytes;
    std::vector<float> alone;
    const float* gradient = batch.gradients + i * batch.stride;
    if (batch.gradient_rows != nullptr) {
      for (std::size_t c = 0; c < columns; ++c) alone.push_back(0.0f + batch.gradient_rows[i][c]);
      gradient = alone.data();
    }
    Row row{std::vector<float>(columns), gradient,
            RowStateFloats(parameters.rule) != 0 ? rows.row_state + slot : nullptr,
            arrays != 0 ? rows.element_state + slot * arrays * columns : nullptr};
    for (std::size_t c = 0; c < columns; ++c) {
      row.w[c] = Decode(weights, rows.weights.element, c);
    }
    const float* const sum_squares =
        batch.row_sum_squares == nullptr ? nullptr : batch.row_sum_squares + i;
    switch (parameters.rule) {
      case OptimizerKind::kSgd:
        StepSgd(parameters, row);
        break;
      case OptimizerKind::kRowwiseAdagrad:
        StepRowwiseAdagrad(parameters, static_cast<float>(rows.dim), sum_squares, row);
        break;
      case OptimizerKind::kAdagrad:
        StepAdagrad(parameters, row);
        break;
      case OptimizerKind::kAdam:
        StepAdam(parameters, batch.step, row);
        break;
    }
    StoreWeights(parameters, rows, batch.step, slot, row);
  }
}

}  // namespace embla::kernels::reference
