#include "server/shard/testing/table_model.h"

#include "core/base/check.h"
#include "kernels/combine.h"
#include "kernels/convert.h"
#include "server/table/element.h"

namespace embla::testing {

TableModel::TableModel(const TableSpec& spec)
    : spec_(spec), budget_(std::size_t{1} << 30), pool_(1) {
  Slice whole;
  whole.row_end = spec.rows;
  whole.column_end = spec.dim;
  absl::StatusOr<std::unique_ptr<HostRowStore>> store =
      HostRowStore::Create(spec, whole, budget_, pool_);
  EMBLA_CHECK(store.ok());
  store_ = *std::move(store);
}

void TableModel::Add(std::int64_t row, std::vector<float> gradient) {
  EMBLA_CHECK(Has(row) && gradient.size() == spec_.dim);
  gradients_[row].push_back(std::move(gradient));
}

std::map<std::int64_t, std::vector<float>> TableModel::Sums() const {
  std::map<std::int64_t, std::vector<float>> sums;
  for (const auto& [row, gradients] : gradients_) {
    std::vector<float>& sum = sums[row];
    sum.assign(spec_.dim, 0.0f);
    for (std::size_t piece = 0; piece < gradients.size(); piece += kernels::kCombinePiece) {
      std::vector<float> piece_sum(spec_.dim, 0.0f);
      for (std::size_t i = piece; i < std::min(piece + kernels::kCombinePiece, gradients.size());
           ++i) {
        for (std::uint32_t c = 0; c < spec_.dim; ++c) piece_sum[c] += gradients[i][c];
      }
      for (std::uint32_t c = 0; c < spec_.dim; ++c) sum[c] += piece_sum[c];
    }
  }
  return sums;
}

void TableModel::Step(std::uint64_t step, std::optional<float> learning_rate) {
  OptimizerSpec optimizer = spec_.optimizer;
  optimizer.learning_rate = learning_rate.value_or(optimizer.learning_rate);
  EMBLA_CHECK(store_->SetOptimizer(optimizer, spec_.rounding).ok());
  for (const auto& [row, sum] : Sums()) {
    const auto slot = static_cast<std::uint32_t>(row);
    RowStepBatch batch;
    batch.slots = {&slot, 1};
    batch.gradients = sum;
    batch.stride = spec_.dim;
    batch.step = step;
    EMBLA_CHECK(store_->Step(batch).ok());
  }
  gradients_.clear();
}

void TableModel::Write(std::int64_t row, std::span<const float> weights,
                       std::span<const float> state) {
  const auto slot = static_cast<std::uint32_t>(row);
  const ColumnRange all{0, spec_.dim};
  std::vector<std::byte> new_weights = Weights(row, all);
  std::vector<float> new_state = State(row, all);
  if (!weights.empty()) {
    kernels::Convert({weights.data(), weights.size_bytes()},
                     {new_weights.data(), new_weights.size(), ElementOf(spec_.dtype)}, 1,
                     spec_.dim);
  }
  if (!state.empty()) new_state.assign(state.begin(), state.end());
  EMBLA_CHECK(store_->WriteRows({&slot, 1}, all, {new_weights, new_state}).ok());
}

void TableModel::Begin(std::int64_t row, RowId id) {
  const auto slot = static_cast<std::uint32_t>(row);
  EMBLA_CHECK(store_->ResetRowsTo({&slot, 1}, {&id, 1}).ok());
}

std::vector<float> TableModel::Initial(RowId id, ColumnRange columns) const {
  std::vector<float> row(columns.size());
  EMBLA_CHECK(
      store_
          ->GatherInitial({&id, 1}, columns,
                          {row.data(), row.size() * sizeof(float), kernels::Element::kFloat32})
          .ok());
  return row;
}

void TableModel::SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) {
  spec_.optimizer = optimizer;
  spec_.rounding = rounding;
  EMBLA_CHECK(store_->SetOptimizer(optimizer, rounding).ok());
}

std::vector<std::byte> TableModel::Weights(std::int64_t row, ColumnRange columns) const {
  const auto slot = static_cast<std::uint32_t>(row);
  std::vector<std::byte> weights(RowBytes(spec_.dtype, columns.size()));
  std::vector<float> state(store_->StateFloats(columns.size()));
  EMBLA_CHECK(store_->ReadRows({&slot, 1}, columns, {weights, state}).ok());
  return weights;
}

std::vector<float> TableModel::Decoded(std::int64_t row, ColumnRange columns) const {
  const std::vector<std::byte> weights = Weights(row, columns);
  std::vector<float> decoded(columns.size());
  kernels::Convert({weights.data(), weights.size(), ElementOf(spec_.dtype)},
                   {decoded.data(), decoded.size() * sizeof(float), kernels::Element::kFloat32}, 1,
                   columns.size());
  return decoded;
}

std::vector<float> TableModel::State(std::int64_t row, ColumnRange columns) const {
  const auto slot = static_cast<std::uint32_t>(row);
  std::vector<std::byte> weights(RowBytes(spec_.dtype, columns.size()));
  std::vector<float> state(store_->StateFloats(columns.size()));
  EMBLA_CHECK(store_->ReadRows({&slot, 1}, columns, {weights, state}).ok());
  return state;
}

}  // namespace embla::testing
