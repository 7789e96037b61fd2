#include "core/plan/table_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/replica_groups.h"
#include "core/plan/slice_map.h"
#include "core/plan/zch_memory.h"

namespace embla {
namespace {

absl::Status CheckSlice(const TableSpec& spec, const Slice& slice) {
  if (slice.row_begin < 0 || slice.row_begin >= slice.row_end || slice.row_end > spec.rows ||
      slice.column_begin >= slice.column_end || slice.column_end > spec.dim) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", ToString(slice),
                                                   " is empty or outside ", spec.rows, " rows x ",
                                                   spec.dim, " columns"));
  }
  if (!spec.IsRowBorder(slice.row_begin) || !spec.IsRowBorder(slice.row_end) ||
      !spec.IsColumnBorder(slice.column_begin) || !spec.IsColumnBorder(slice.column_end)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slice ", ToString(slice), " is not cut on granule borders (", spec.row_granules,
        " row granules, column granules of ", spec.column_granule_width, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckSorted(const std::vector<Slice>& slices) {
  for (std::size_t i = 1; i < slices.size(); ++i) {
    const Slice& a = slices[i - 1];
    const Slice& b = slices[i];
    if (std::tie(a.column_begin, a.row_begin) < std::tie(b.column_begin, b.row_begin)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "slices are not sorted by (column_begin, row_begin), or overlap: ", ToString(b),
        " comes after ", ToString(a)));
  }
  return absl::OkStatus();
}

// Rows [begin, end) of `cut` belong to `what`: to no slice, or to two.
absl::Status TilingError(const char* what, std::int64_t begin, std::int64_t end,
                         std::uint32_t column_begin, std::uint32_t column_end) {
  return absl::InvalidArgumentError(absl::StrCat(
      "rows ", begin, "-", end, " x columns ", column_begin, "-", column_end, " belong to ", what));
}

absl::Status CheckRowsCovered(const TableSpec& spec, const std::vector<Slice>& slices,
                              const ColumnCut& cut) {
  std::int64_t covered_to = 0;
  for (const std::uint32_t index : cut.slices) {
    const Slice& slice = slices[index];
    if (slice.row_begin > covered_to) {
      return TilingError("no slice", covered_to, slice.row_begin, cut.column_begin, cut.column_end);
    }
    if (slice.row_begin < covered_to) {
      return TilingError("two slices", slice.row_begin, std::min(covered_to, slice.row_end),
                         cut.column_begin, cut.column_end);
    }
    covered_to = slice.row_end;
  }
  if (covered_to == spec.rows) return absl::OkStatus();
  return TilingError("no slice", covered_to, spec.rows, cut.column_begin, cut.column_end);
}

// Two copies of one row on one device would be neither safer nor faster.
absl::Status CheckReplicas(const TablePlan& table) {
  if (table.replicas.empty()) return absl::InvalidArgumentError("there are no slices");
  absl::flat_hash_set<std::pair<std::uint32_t, std::uint32_t>> devices;
  for (const std::vector<Slice>& replica : table.replicas) {
    absl::flat_hash_set<std::pair<std::uint32_t, std::uint32_t>> mine;
    for (const Slice& slice : replica) mine.insert({ToInt(slice.device.node), slice.device.index});
    for (const auto& device : mine) {
      if (devices.insert(device).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two replicas are on device ", device.second, " of node ", device.first));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToString(const Slice& slice) {
  return absl::StrCat("rows ", slice.row_begin, "-", slice.row_end, " x columns ",
                      slice.column_begin, "-", slice.column_end);
}

absl::Status TablePlan::Validate() const {
  EMBLA_RETURN_IF_ERROR(spec.Validate());
  if (NameOf(sharding).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown sharding type ", static_cast<int>(sharding)));
  }
  EMBLA_RETURN_IF_ERROR(CheckShardingFits(spec, sharding));
  EMBLA_RETURN_IF_ERROR(CheckReplicas(*this));
  if (spec.zch.has_value() && replicas.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a zch table has one copy, not ", replicas.size()));
  }
  for (const std::vector<Slice>& replica : replicas) {
    EMBLA_RETURN_IF_ERROR(ValidateTiling(spec, replica));
    EMBLA_RETURN_IF_ERROR(CheckOptimizerFits(spec, CutsColumns(spec, replica)));
  }
  return CheckGroupCount(*this);
}

std::set<NodeId> HoldersOf(const TablePlan& table) {
  std::set<NodeId> holders;
  for (const std::vector<Slice>& replica : table.replicas) {
    for (const Slice& slice : replica) holders.insert(slice.device.node);
  }
  return holders;
}

bool CutsColumns(const TableSpec& spec, const std::vector<Slice>& slices) {
  return std::any_of(slices.begin(), slices.end(),
                     [&](const Slice& slice) { return slice.columns() != spec.dim; });
}

std::int64_t SliceBytes(const TableSpec& spec, const Slice& slice) {
  const auto state_floats =
      static_cast<std::int64_t>(StateShapeOf(spec.optimizer).Floats(slice.columns()));
  const auto weight_bytes = static_cast<std::int64_t>(RowBytes(spec.dtype, slice.columns()));
  const std::int64_t slot_bytes = spec.zch.has_value() ? IdMapBytesPerSlot(*spec.zch) : 0;
  return slice.rows() * (weight_bytes + 4 * state_floats + slot_bytes);
}

absl::Status CheckShardingFits(const TableSpec& spec, ShardingType sharding) {
  const ShardingTraits traits = TraitsOf(sharding);
  const bool one_copy_of_whole_rows = !traits.cuts_columns && !traits.has_copies;
  if (spec.sync.has_value() && traits.has_copies) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name,
                     " has synchronous steps, which a data_parallel table cannot have; use "
                     "table_wise or row_wise"));
  }
  if (!spec.zch.has_value() || one_copy_of_whole_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", spec.name,
      " is a zch table: it has one copy and keeps its rows whole, so sharding ",
      ToAbsl(NameOf(sharding)), " is not possible; use table_wise, table_row_wise or row_wise"));
}

absl::Status CheckOptimizerFits(const TableSpec& spec, bool cuts_columns) {
  const OptimizerSpec& optimizer = spec.optimizer;
  if (!cuts_columns || !NeedsRowStatistic(optimizer)) return absl::OkStatus();
  if (spec.sync.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToAbsl(NameOf(optimizer.kind)),
        " has a row statistic, and with synchronous steps that is of the sum over all ranks, which "
        "is known where the row is whole, but this table's columns are cut: use a type that keeps "
        "rows whole"));
  }
  if (optimizer.weight_decay == 0.0f || optimizer.weight_decay_mode != WeightDecayMode::kL2) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("L2 weight decay makes ", ToAbsl(NameOf(optimizer.kind)),
                   "'s row statistic depend on all weights of a row, but this table's columns are "
                   "cut: use decoupled decay or a type that keeps rows whole"));
}

absl::Status ValidateTiling(const TableSpec& spec, const std::vector<Slice>& slices) {
  for (const Slice& slice : slices) EMBLA_RETURN_IF_ERROR(CheckSlice(spec, slice));
  EMBLA_RETURN_IF_ERROR(CheckSorted(slices));
  std::uint32_t covered_to = 0;
  for (const ColumnCut& cut : CutColumns(slices)) {
    if (cut.column_begin > covered_to) {
      return TilingError("no slice", 0, spec.rows, covered_to, cut.column_begin);
    }
    EMBLA_RETURN_IF_ERROR(CheckRowsCovered(spec, slices, cut));
    covered_to = cut.column_end;
  }
  if (covered_to == spec.dim) return absl::OkStatus();
  return TilingError("no slice", 0, spec.rows, covered_to, spec.dim);
}

}  // namespace embla
