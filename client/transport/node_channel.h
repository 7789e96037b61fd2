// One shard server, as the client calls it.
//
// Thread safety: every method may be called from any thread. `done` runs exactly once per call, on
// a thread of the channel or on the caller's, and never under a lock of the channel; it must not
// block. Once it has run, the request's reply_rows are not written any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "client/route/node_request.h"
#include "core/base/ids.h"
#include "core/rows/refused_unit.h"

namespace embla::client {

struct NodeReply {
  absl::Status status;
  std::size_t sent_bytes = 0;
  std::size_t received_bytes = 0;
  // Of an update: rows that the node left out. Everything else is applied.
  std::vector<RefusedUnit> refused = {};
};

class NodeChannel {
 public:
  using Done = std::function<void(NodeReply)>;
  // Receives one encoded row block (core/rows/row_block.h).
  using RowBlockSink = std::function<absl::Status(std::span<const std::byte>)>;

  struct RowsQuery {
    TableId table{};
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    std::vector<std::int64_t> row_ids = {};  // If not empty, these instead of the range.
    bool with_state = false;
    std::uint32_t replica_group = 0;
  };

  struct SyncQuery {
    PlanVersion plan_version{};
    std::vector<TableId> tables = {};
  };
  // What averaging a table's replica groups on the node found: see TableSync in data.proto.
  struct TableSync {
    TableId table{};
    std::uint64_t values = 0;
    double divergence_max = 0.0;
    double squares = 0.0;
  };

  virtual ~NodeChannel() = default;

  // Errors are the node's own (proto/embla/v1/data.proto), and
  //   Unavailable        the node cannot be reached, or the connection broke before the reply
  //   DeadlineExceeded   no reply by `deadline`
  //   ResourceExhausted  too many requests wait for this node already
  //   Internal           the reply does not answer the request
  virtual void Lookup(NodeLookup request, absl::Time deadline, Done done) = 0;
  virtual void Update(NodeUpdate request, absl::Time deadline, Done done) = 0;

  // Reads the rows the node holds; blocks. Calls `sink` on this thread until all rows are read or
  // it returns an error.
  virtual absl::Status ReadRows(const RowsQuery& query, absl::Time deadline,
                                const RowBlockSink& sink) = 0;

  // Averages the replica groups of the tables on the node, all or none of them; blocks.
  virtual absl::StatusOr<std::vector<TableSync>> Sync(const SyncQuery& query,
                                                      absl::Time deadline) = 0;

  // What the node knows of an id of a ZCH table; its own name is left out. Blocks.
  virtual absl::StatusOr<IdExplanation> ExplainId(TableId table, std::int64_t id,
                                                  absl::Time deadline) = 0;

  // Gives up the connection: calls in flight and later ones fail with Unavailable.
  virtual void Close() = 0;
};

}  // namespace embla::client
