// The places of one table's rows: its tiling, or its copies' tilings. An immutable value that plans
// share.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/plan/step_members.h"
#include "core/plan/table_spec.h"

namespace embla {

// A rectangle of units on one device.
struct Slice {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;  // Exclusive; == row_begin is an empty slice and is never stored.
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  DeviceId device{};

  std::int64_t rows() const { return row_end - row_begin; }
  std::uint32_t columns() const { return column_end - column_begin; }
  bool operator==(const Slice&) const = default;
};

std::string ToString(const Slice& slice);  // "rows 0-10 x columns 0-4"

// One table's tiling. Slices are sorted by (column_begin, row_begin) and tile the table exactly,
// once; a replicated table holds one such tiling per copy, primary first, and a table with replica
// groups one per group (core/plan/replica_groups.h).
struct TablePlan {
  TableSpec spec;
  ShardingType sharding = ShardingType::kTableWise;  // The user's request; for display only.
  std::vector<std::vector<Slice>> replicas;  // Never empty; [0] orders the updates, or is group 0.
  // Kept on its nodes and not served: nodes had the table and the coordinator's store, restored
  // from an older copy, did not. An operator adopts or drops it.
  bool aside = false;
  StepPlan steps = {};  // Used only by tables with synchronous steps.

  const std::vector<Slice>& primary() const { return replicas.front(); }
  // Copies that are kept equal by their primary (data_parallel).
  bool replicated() const { return replicas.size() > 1 && !grouped(); }
  // Copies that are trained apart and averaged now and then.
  bool grouped() const { return spec.replica_groups > 1; }

  // Spec and tilings valid. The table may have no id yet, and devices are not looked up.
  absl::Status Validate() const;
  bool operator==(const TablePlan&) const = default;
};

using TablePtr = std::shared_ptr<const TablePlan>;

// The nodes that hold a slice of `table`.
std::set<NodeId> HoldersOf(const TablePlan& table);

// Whether some slice holds only a part of its rows' columns.
bool CutsColumns(const TableSpec& spec, const std::vector<Slice>& slices);

// Bytes of `slice`: weights, optimizer state and, of a ZCH table, what is known about its slots.
std::int64_t SliceBytes(const TableSpec& spec, const Slice& slice);

// The optimizer's demand on the tiling: the columns may not be cut where a row statistic takes
// in all the weights of its row (L2 weight decay), or the sum of what all ranks contribute.
absl::Status CheckOptimizerFits(const TableSpec& spec, bool cuts_columns);

// InvalidArgument where the table cannot be cut so at all: a ZCH table keeps its rows whole and has
// one copy, and one with synchronous steps has one copy.
absl::Status CheckShardingFits(const TableSpec& spec, ShardingType sharding);

// Checks that `slices` cover rows x dim exactly once. The message names the first gap or overlap.
absl::Status ValidateTiling(const TableSpec& spec, const std::vector<Slice>& slices);

}  // namespace embla
