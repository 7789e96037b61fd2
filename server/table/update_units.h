// What becomes of one update's rows of a table some of whose units may be on the move: unit by
// unit, their gates say which rows are applied and which are left out.
//
// Rows outside units with gates are "the rest": one record of updates covers all of them
// (ReplayWindows), and the caller asks it.
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

class UpdateUnits {
 public:
  // A unit with a gate of which the update has rows.
  struct Touched {
    UnitShape shape;
    std::shared_ptr<UnitGate> gate;
    UnitUpdate update;
    std::vector<std::size_t> parts;  // That have rows of it, ascending.
    bool present = false;            // Its rows are on this node.
    PartAnswer answer;

    void Add(std::int64_t row, std::size_t part);
    bool applies() const { return answer.status == PartStatus::kApplied; }
    bool refused() const { return !applies() && answer.status != PartStatus::kDuplicate; }
  };

  // Sorts the rows of `parts` by unit and asks the gates. On the table's lead device.
  // OutOfRange (an id outside the table, in bounds mode error), FailedPrecondition (a row that is
  // neither here nor has a gate).
  absl::Status Decide(TableShard& table, TableParts parts, const UpdateBatch& batch,
                      BoundsMode bounds);
  // The rest is left out: it was applied before.
  void SkipRest() { applies_rest_ = false; }
  // Tells the gates whose rows are applied. On the lead device, in the task that called Decide.
  void Record() const;

  // Whether there are rows outside units with gates.
  bool has_rest() const { return has_rest_; }
  bool applies_rest() const { return has_rest_ && applies_rest_; }
  bool applies_nothing() const;
  std::span<const Touched> touched() const { return touched_; }
  // Ids times columns that this node has, applied or not.
  std::size_t present() const { return present_; }
  std::size_t out_of_range() const { return out_of_range_; }

  // The rows of a slice of `columns` that are left out.
  RowIntervals Skipped(ColumnRange columns) const;

 private:
  absl::Status Sort(TableShard& table, const UpdatePart& part, std::size_t number,
                    BoundsMode bounds);
  // The unit of a gate; `number`, 1 + its place in touched_ or 0, is where it is kept.
  Touched& Touch(std::uint32_t& number, const TableUnits::Cut::Gated& gated, bool present);

  std::vector<Touched> touched_;
  // By cut and gate: 1 + the place in touched_, or 0.
  std::vector<std::vector<std::uint32_t>> number_of_;
  bool has_rest_ = false;
  bool applies_rest_ = true;
  std::size_t present_ = 0;
  std::size_t out_of_range_ = 0;
  std::int64_t rows_ = 0;
};

}  // namespace embla
