// Tables of a node as parts of its image (node_image.h), and tables that begin with one.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/shard/node_image.h"
#include "server/shard/node_tables.h"

namespace embla {

// A table that is here, or is to be, by the node's plan.
struct PlannedTable {
  const TableSpec* spec = nullptr;
  const NodeTable* table = nullptr;  // Null: nothing of it is here.
  TableSteps* steps = nullptr;       // Null: it has none.
  // The slices that the plan has here, by replica group; none: it has none.
  std::vector<std::vector<Slice>> slices = {};
};
// Views `tables`.
std::vector<PlannedTable> PlannedTables(const NodeTables& tables);

// Adds the table to the image, with windows of all rows of it that are here. Unavailable: the role
// of its copy here is on its way. Requires: the table's devices stand still.
absl::Status AddTable(const PlannedTable& planned, NodeImage& image,
                      std::vector<RowWindow>& windows);

// `tables`, which were made for `image`, with what it has of them. DataLoss: it is of other tables.
absl::StatusOr<NodeTablesPtr> WithImage(const NodeTables& tables, const NodeImage& image,
                                        absl::Time now);

}  // namespace embla
