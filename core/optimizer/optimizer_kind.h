// The optimizers, and what each is to those who do not compute its steps: its name, and the state
// that its rows carry. Plans, planner, stores, wire and kernels read this one table; the formulas
// are in docs/optimizers.md and, as plain loops, in kernels/cpu/reference_step.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/enum_values.h"

namespace embla {

// The numbers stand in plans and on the wire: they never change.
enum class OptimizerKind : std::uint8_t { kSgd = 1, kRowwiseAdagrad = 2, kAdagrad = 3, kAdam = 4 };

// fp32 state of one row: per row (for instance row-wise Adagrad's accumulator) and per element.
struct StateShape {
  std::uint32_t row_floats = 0;      // Scalars per row.
  std::uint32_t element_arrays = 0;  // Arrays of `dim` per row.
  // Number of leading scalars that count steps. Averaging takes the largest of them, not the mean.
  std::uint32_t row_counters = 0;

  // Floats of a row of `columns` columns.
  constexpr std::size_t Floats(std::size_t columns) const {
    return row_floats + element_arrays * columns;
  }
};

struct OptimizerTraits {
  std::string_view name;  // In JSON, flags and messages.
  StateShape state;
  // A statistic over a whole row enters every element's step, so a slice of columns is not enough.
  bool needs_row_statistic = false;
  // State starts at the spec's initial_accumulator, else at 0.
  bool starts_at_accumulator = false;
};

// Empty for a number that is no optimizer. The switch has no `default`, so that the compiler
// refuses a kind that has no traits.
constexpr OptimizerTraits TraitsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return {.name = "sgd", .state = {}};
    case OptimizerKind::kRowwiseAdagrad:
      return {.name = "rowwise_adagrad",
              .state = {.row_floats = 1},
              .needs_row_statistic = true,
              .starts_at_accumulator = true};
    case OptimizerKind::kAdagrad:
      return {.name = "adagrad", .state = {.element_arrays = 1}, .starts_at_accumulator = true};
    case OptimizerKind::kAdam:
      // The row's step count is kept under both bias corrections: they can be switched live.
      return {.name = "adam", .state = {.row_floats = 1, .element_arrays = 2, .row_counters = 1}};
  }
  return {};
}

constexpr bool IsOptimizer(OptimizerKind kind) { return !TraitsOf(kind).name.empty(); }

// Every optimizer, by number.
inline constexpr auto kOptimizerKinds = EnumValues<OptimizerKind, &IsOptimizer>();

// Numbers are given in order, from 1: 0 is no optimizer.
static_assert(static_cast<std::size_t>(kOptimizerKinds.back()) == kOptimizerKinds.size());

// Stores keep at most one scalar per row, and a count of steps starts at 0.
constexpr bool StoresCanKeep(const OptimizerTraits& traits) {
  return traits.state.row_floats <= 1 && traits.state.row_counters <= traits.state.row_floats &&
         !(traits.state.row_counters > 0 && traits.starts_at_accumulator);
}
static_assert([] {
  for (const OptimizerKind kind : kOptimizerKinds) {
    if (!StoresCanKeep(TraitsOf(kind))) return false;
  }
  return true;
}());

}  // namespace embla
