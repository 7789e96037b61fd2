// Reads whole rows, weights or optimizer state, from the nodes that hold them: row blocks of any
// columns, put together into the caller's array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/node_directory.h"
#include "client/route/table_route.h"
#include "core/base/ids.h"

namespace embla::client {

class RowReader {
 public:
  // Reads the table's copy number `replica`, of its replica group `group`. Nothing is owned; all
  // outlive this object. Requires: the table is one of `routes`.
  RowReader(const Routes& routes, const TableRoute& table, NodeDirectory& nodes,
            std::size_t replica, std::uint32_t group)
      : routes_(routes), table_(table), nodes_(nodes), replica_(replica), group_(group) {}

  // Weights of the rows [row_begin, row_end), as fp32, and their state as ReadState gives it,
  // unless `state` is empty. Nodes are read at the same time. Errors: Unavailable (a node does not
  // answer, or does not hold what the plan says; names it), DeadlineExceeded, DataLoss (a damaged
  // row block).
  absl::Status ReadRange(std::int64_t row_begin, std::int64_t row_end, absl::Time deadline,
                         std::span<float> weights, std::span<float> state) const;

  // Optimizer state of `ids`: per row the scalars, then the arrays of dim.
  // Errors: as ReadRange, and OutOfRange: an id outside the table, or without a row.
  absl::Status ReadState(std::span<const std::int64_t> ids, absl::Time deadline,
                         std::span<float> out) const;

  // Reads of a ZCH table the ids that have one of the rows [row_begin, row_end), ascending, their
  // weights as fp32, one row each, and their state, if that is asked for. Errors: as ReadRange.
  struct Residents {
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    std::vector<float> state;
  };
  absl::Status ReadResidents(std::int64_t row_begin, std::int64_t row_end, bool with_state,
                             absl::Time deadline, Residents& residents) const;

 private:
  struct NodeRead;

  NodeRead& ReadOf(NodeId node, std::vector<NodeRead>& reads) const;
  absl::Status ReadNode(NodeRead& read, absl::Time deadline) const;
  absl::Status ReadNodes(std::span<NodeRead> reads, absl::Time deadline) const;

  const Routes& routes_;     // Not owned.
  const TableRoute& table_;  // Not owned.
  NodeDirectory& nodes_;     // Not owned.
  const std::size_t replica_;
  const std::uint32_t group_;
};

// Floats of optimizer state per row.
std::size_t StateFloats(const TableSpec& spec);

}  // namespace embla::client
