// Decides on one update's rows of a table some of whose units may be on the move: unit by unit,
// their gates say which rows are applied and which are left out.
//
// Rows outside units with gates are "the rest": one record of updates covers all of them
// (TableShard::rest), and the caller asks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/rows/request.h"
#include "server/table/table_shard.h"
#include "server/table/update_share.h"

namespace embla {

// The decision on the rows of one unit that had a gate.
struct DecidedUnit {
  std::uint32_t row_granule = 0;
  ColumnRange columns;  // Columns of the unit's cut.
  bool applies = false;
  bool operator==(const DecidedUnit&) const = default;
};

class UpdateUnits {
 public:
  // A unit with a gate of which the update has rows.
  struct Touched {
    std::uint32_t row_granule = 0;
    UnitShape shape;
    std::shared_ptr<UnitGate> gate;
    UnitUpdate update;
    std::vector<std::size_t> parts;  // Parts that have rows of it, ascending.
    bool present = false;            // Its rows are on this node.
    bool counts_chunks = false;      // A move looks at the unit, and at which chunks change.
    PartAnswer answer;

    void AddChunkOf(std::int64_t row);
    bool Has(std::int64_t row, ColumnRange columns) const {
      return shape.row_begin <= row && row < shape.row_end && shape.column_begin == columns.begin &&
             shape.column_end == columns.end;
    }
    bool applies() const { return answer.status == PartStatus::kApplied; }
    bool refused() const { return !applies() && answer.status != PartStatus::kDuplicate; }
  };

  // Sorts the rows of `parts` by unit and asks the gates; of a whole step those of all its units.
  // On the table's lead device.
  // OutOfRange (an id outside the table, in bounds mode error), FailedPrecondition (a row that is
  // neither here nor has a gate).
  absl::Status Decide(TableShard& table, TableParts parts, const UpdateBatch& batch,
                      BoundsMode bounds);
  // Takes what an earlier process decided instead of asking; there are no gates. On the lead
  // device. DataLoss: a row that is to be applied is not here.
  absl::Status Repeat(TableShard& table, TableParts parts, std::span<const DecidedUnit> units,
                      bool applies_rest);
  // Rows that are left out whatever was decided.
  void LeaveAlone(const RowIntervals& rows) { left_alone_ = rows; }
  // The rest is left out: it was applied before.
  void SkipRest() { applies_rest_ = false; }
  // Tells the gates whose rows are applied. On the lead device, in the task that called Decide.
  void Record(const UpdateBatch& batch) const;

  // Whether there are rows outside units with gates.
  bool has_rest() const { return has_rest_; }
  bool applies_rest() const { return has_rest_ && applies_rest_; }
  bool applies_nothing() const;
  // Whether some unit is not applied.
  bool leaves_something() const;
  // Whether rows are left out that were applied before.
  bool repeats_something() const;
  // The argument for Repeat.
  std::vector<DecidedUnit> Decisions() const;
  std::span<const Touched> touched() const { return touched_; }
  // Ids times columns that this node has, applied or not.
  std::size_t present() const { return present_; }
  std::size_t out_of_range() const { return out_of_range_; }

  // The rows of a slice of `columns` that are left out.
  RowIntervals Skipped(ColumnRange columns) const;

 private:
  // For a step: also units without rows make it.
  void TouchAll(TableShard& table, const UnitSet& units);
  absl::Status Sort(TableShard& table, const UpdatePart& part, std::size_t number,
                    BoundsMode bounds);
  // A row granule of which the part that is sorted has rows.
  struct Granule {
    std::uint32_t number = 0;
    std::uint32_t present_columns = 0;
  };
  // Notes that part `number` has rows of `granule`: false if, in some of `columns`, that is neither
  // here nor has a gate.
  bool SortGranule(const TableUnits& units, Granule& granule, ColumnRange columns,
                   std::size_t number);
  // Counts what of the part's rows is here, and notes which chunks change.
  void CountRows(TableShard& table, const UpdatePart& part);
  absl::Status RepeatRow(TableShard& table, std::int64_t row, ColumnRange columns);
  // The unit of a gate; `number`, 1 + its place in touched_ or 0, is where it is kept.
  Touched& Touch(std::uint32_t& number, const TableUnits::Cut::Gated& gated, bool present);

  std::vector<Touched> touched_;
  // By cut and gate: 1 + the place in touched_, or 0.
  std::vector<std::vector<std::uint32_t>> number_of_;
  // The part that is sorted has rows of these.
  std::vector<Granule> granules_;
  std::vector<std::uint32_t> place_of_;  // By row granule: 1 + the place in granules_, or 0.
  bool counts_chunks_ = false;           // Some unit that it has does.
  bool has_rest_ = false;
  bool applies_rest_ = true;
  std::size_t present_ = 0;
  std::size_t out_of_range_ = 0;
  std::int64_t rows_ = 0;
  RowIntervals left_alone_;
};

}  // namespace embla
