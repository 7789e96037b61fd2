// Contributions to a synchronous step as one update: their parts in the order of ranks. Each of
// them has a row once, so an update's sum over the occurrences of a row is the one over the ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/id_rows.h"
#include "core/plan/unit_set.h"
#include "core/rows/request.h"
#include "server/steps/sync_steps.h"
#include "server/storage/row_store.h"
#include "server/table/unit_shape.h"

namespace embla {

// A request's part of a step: the rows of `units`, not those of others that it has.
struct StepPart {
  const UpdateBatch* batch = nullptr;  // Not owned.
  UnitSet units;
};

class StepUpdates {
 public:
  explicit StepUpdates(const TableSpec& spec) : spec_(spec), id_rows_(spec), granules_(spec) {}

  // Whether the batch's ids are of units that it claims, each once. `cuts` are all that the node
  // has of the table. Ids outside the table are left alone. Errors: InvalidArgument.
  absl::Status CheckClaimed(const UpdateBatch& batch, std::span<const ColumnRange> cuts) const;

  // Requires: the parts are of one step, one wire_dtype and one learning rate, and CheckClaimed was
  // content with them.
  UpdateBatch Join(std::uint64_t step, const UnitSet& units, std::span<const StepPart> parts,
                   std::span<const ColumnRange> cuts) const;

 private:
  bool InTable(RowId id) const;
  std::uint32_t GranuleOf(RowId id) const { return granules_.GranuleOf(id_rows_.RowOf(id)); }
  std::uint32_t ColumnGranule(ColumnRange columns) const {
    return columns.begin / spec_.column_granule_width;
  }
  // Whether all units that `part` has rows of are in `units`.
  bool AreWithin(const UpdatePart& part, const UnitSet& units,
                 std::span<const ColumnRange> cuts) const;
  bool FitTogether(std::span<const StepPart> parts, std::span<const ColumnRange> cuts) const;
  void AppendCut(const UpdatePart& part, DType wire_dtype, const UnitSet& units, ColumnRange cut,
                 UpdateBatch& update, std::vector<SharedBuffer>& memory) const;

  const TableSpec spec_;
  const IdRows id_rows_;
  const GranuleFinder granules_;
};

}  // namespace embla
