// Operators' questions about a ZCH table, put to every node that holds a part of it, one after the
// other.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "client/node_directory.h"
#include "client/route/table_route.h"

namespace embla::client {

// InvalidArgument unless it is a ZCH table.
absl::Status CheckZch(const TableSpec& spec);

// Ages are up to `step`.
absl::StatusOr<TableSurvey> SurveyNodes(const TablePlan& table, NodeDirectory& nodes,
                                        std::uint64_t step, absl::Time deadline);

// A sweep of all buckets, each once, wherever they are. Not thread safe.
class TableSweep {
 public:
  TableSweep(const TableSpec& spec, const SweepOptions& options, std::uint64_t at_step);

  // Asks the holders of `table` for the buckets that are not done yet. Unavailable: some are left,
  // as they are on the move; ask again. Other errors are a node's.
  absl::Status AskNodes(const TablePlan& table, NodeDirectory& nodes, absl::Time deadline);

  SweepReport report() const { return report_; }

 private:
  std::vector<NodeChannel::RowRange> RowsLeft() const;

  NodeChannel::SweepQuery query_;
  const std::int64_t rows_per_bucket_;
  std::vector<bool> done_;  // By bucket.
  SweepReport report_;
};

}  // namespace embla::client
