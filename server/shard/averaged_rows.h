// The rows that an averaging of replica groups covers: those of a table that are on the node and
// not being handed over.
#pragma once

#include <vector>

#include "core/base/ids.h"
#include "server/storage/row_store.h"
#include "server/table/row_intervals.h"

namespace embla {

struct AveragedRows {
  ColumnRange columns;  // One cut's columns.
  RowInterval rows;
  bool operator==(const AveragedRows&) const = default;
};

// An averaging that nothing can refuse any more.
struct DecidedSync {
  struct Table {
    TableId table{};
    std::vector<AveragedRows> rows;  // By columns, then rows.
    bool operator==(const Table&) const = default;
  };
  std::vector<Table> tables;
  bool operator==(const DecidedSync&) const = default;
};

}  // namespace embla
