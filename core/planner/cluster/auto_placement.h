// `--sharding auto`: the planner chooses type and places of tables beside those that are there,
// none of which moves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/planner/placement.h"

namespace embla::planner {

struct AutoPlacement {
  PlacementRequest request;  // With a type and targets, for PlaceTable.
  std::string reason;        // One sentence for people.
};

// The type and the places with the least max load under Embla's cost model; of equal ones the
// simplest. `request` restricts nodes, devices and column blocks. Deterministic.
//
// Errors: InvalidArgument (unknown node or device, replica groups), ResourceExhausted (no cut of
// the table fits; names what is short), Cancelled (was given up).
absl::StatusOr<AutoPlacement> ChoosePlacement(const TableSpec& spec,
                                              const PlacementRequest& request,
                                              const std::vector<NodeSpec>& nodes,
                                              const TableList& existing,
                                              const GivenUp& given_up = nullptr);

struct TableToPlace {
  TableSpec spec;
  PlacementRequest request;
};

// Places tables beside those that are there, in the order given: by PlaceTable where a type is
// named, then the automatic ones, several of them together, with the least max load of all. Errors
// of PlaceTable and ChoosePlacement, for the first table that has one.
absl::StatusOr<std::vector<TablePlan>> PlaceTables(std::span<const TableToPlace> tables,
                                                   const std::vector<NodeSpec>& nodes,
                                                   const TableList& existing,
                                                   const GivenUp& given_up = nullptr);

// The same for one table.
absl::StatusOr<TablePlan> PlaceOrChoose(const TableSpec& spec, const PlacementRequest& request,
                                        const std::vector<NodeSpec>& nodes,
                                        const TableList& existing,
                                        const GivenUp& given_up = nullptr);

}  // namespace embla::planner
