// A table as one plain array with one slice, updated by loops over occurrences: what every plan
// must agree with bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/plan/table_spec.h"
#include "server/storage/host_row_store.h"

namespace embla::testing {

class TableModel {
 public:
  explicit TableModel(const TableSpec& spec);

  const TableSpec& spec() const { return spec_; }
  bool Has(std::int64_t row) const { return row >= 0 && row < spec_.rows; }

  // A gradient of `row`, in arrival order; already clipped and weighted.
  void Add(std::int64_t row, std::vector<float> gradient);
  // The sums of what was added, by row.
  std::map<std::int64_t, std::vector<float>> Sums() const;
  // One step with what was added, then forgets it.
  void Step(std::uint64_t step, std::optional<float> learning_rate = {});
  // Replaces the row's weights and state; what is empty stays.
  void Write(std::int64_t row, std::span<const float> weights, std::span<const float> state);

  // Makes `row` what the row of `id` begins with.
  void Begin(std::int64_t row, RowId id);

  void SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding);

  // Columns of one row: weights as stored, decoded, and state.
  std::vector<std::byte> Weights(std::int64_t row, ColumnRange columns) const;
  std::vector<float> Decoded(std::int64_t row, ColumnRange columns) const;
  // Returns the initial row of `id`, decoded.
  std::vector<float> Initial(RowId id, ColumnRange columns) const;
  std::vector<float> State(std::int64_t row, ColumnRange columns) const;

 private:
  TableSpec spec_;
  MemoryBudget budget_;
  ThreadPool pool_;
  std::unique_ptr<HostRowStore> store_;
  std::map<std::int64_t, std::vector<std::vector<float>>> gradients_;
};

}  // namespace embla::testing
