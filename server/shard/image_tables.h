// Tables of a node as parts of its image (node_image.h), and tables that begin with one.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/shard/node_image.h"
#include "server/shard/node_tables.h"

namespace embla {

// Unavailable: units of the table, or the role of its copy here, are on their way, so that its plan
// does not say what is here. Requires: the table's devices stand still.
absl::Status CheckAtRest(const TablePlan& plan, const NodeTable& table, NodeId self);

// Requires: the same, and CheckAtRest.
TableImage ImageOf(const NodeTable& table, const TableSteps* steps);

// Windows of all rows that the plan has on `self`.
void AddWindows(const TablePlan& plan, const NodeTable& table, NodeId self,
                std::vector<RowWindow>& windows);

// `tables`, which are new, with what `image` has of them. DataLoss: it is of other tables.
absl::StatusOr<NodeTablesPtr> WithImage(const NodeTables& tables, const NodeImage& image,
                                        absl::Time now);

}  // namespace embla
