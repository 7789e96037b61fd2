// The rows that an averaging of replica groups covers: those of a table that are on the node and
// not being handed over.
#pragma once

#include "server/storage/row_store.h"
#include "server/table/row_intervals.h"

namespace embla {

struct AveragedRows {
  ColumnRange columns;  // One cut's columns.
  RowInterval rows;
  bool operator==(const AveragedRows&) const = default;
};

}  // namespace embla
