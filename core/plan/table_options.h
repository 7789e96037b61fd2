// The values of a table that `embla table set` changes while training goes on, as text.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "core/plan/table_spec.h"

namespace embla {

// Sets each key of `values` and validates the result; all or nothing. Keys: learning_rate, eps,
// beta1, beta2, weight_decay, weight_decay_mode, gradient_clip, bias_correction, rounding, bounds,
// nan_policy, durability, callers (names with commas between them; empty: all), sync_every_steps,
// lookups_per_sample. InvalidArgument names the key, the value and what is allowed.
absl::Status SetTableOptions(const std::map<std::string, std::string>& values, TableSpec* spec);

// Whether the specs are equal but for what SetTableOptions may change.
bool SameShape(const TableSpec& a, const TableSpec& b);

}  // namespace embla
