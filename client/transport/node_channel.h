// One shard server, as the client calls it.
//
// Thread safety: every method may be called from any thread. `done` runs exactly once per call, on
// a thread of the channel or on the caller's, and never under a lock of the channel; it must not
// block. Once it has run, the request's reply_rows are not written any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "client/route/node_request.h"
#include "core/base/ids.h"
#include "core/rows/refused_unit.h"
#include "core/socket/frame_socket.h"

namespace embla::client {

struct NodeReply {
  absl::Status status = {};
  std::size_t sent_bytes = 0;
  std::size_t received_bytes = 0;
  PlanVersion plan_version{};  // The node's; 0 with an error.
  // Rows of an update that the node left out: everything else is applied. Of a lookup, for which
  // the node has moved units: nothing is answered.
  std::vector<RefusedUnit> refused = {};
  // Units of a contribution's claim that did not step. All others have.
  std::vector<RefusedClaim> refused_claims = {};
};

using SocketPtr = std::shared_ptr<FrameSocket>;

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
  // The result of averaging a table's replica groups on the node: see TableSync in data.proto.
  struct TableSync {
    TableId table{};
    std::uint64_t values = 0;
    double divergence_max = 0.0;
    double squares = 0.0;
    struct Rows {  // Averaged rows of one column cut.
      std::uint32_t column_begin = 0;
      std::uint32_t column_end = 0;
      std::int64_t row_begin = 0;
      std::int64_t row_end = 0;
    };
    std::vector<Rows> averaged = {};
  };

  virtual ~NodeChannel() = default;

  // Errors are the node's own (proto/embla/v1/data.proto), and
  //   Unavailable        the node cannot be reached, or the connection broke before the reply
  //   DeadlineExceeded   no reply by `deadline`
  //   ResourceExhausted  too many requests wait for this node already
  //   Internal           the reply does not answer the request
  //
  // Return the socket by which the reply comes, so that who waits for it may receive it; null: it
  // comes in another way.
  virtual SocketPtr Lookup(NodeLookup request, absl::Time deadline, Done done) = 0;
  // Memory that `request` borrows is read until Update returns and, where the kernel is lent it,
  // until `done` begins.
  virtual SocketPtr Update(NodeUpdate request, absl::Time deadline, Done done) = 0;

  // Reads the rows the node holds; blocks. Calls `sink` on this thread until all rows are read or
  // it returns an error.
  virtual absl::Status ReadRows(const RowsQuery& query, absl::Time deadline,
                                const RowBlockSink& sink) = 0;

  // Averages the replica groups of the tables on the node, all or none of them; blocks.
  virtual absl::StatusOr<std::vector<TableSync>> Sync(const SyncQuery& query,
                                                      absl::Time deadline) = 0;

  // Asks the node about an id of a ZCH table; the reply leaves out the node's own name. Blocks.
  virtual absl::StatusOr<IdExplanation> ExplainId(TableId table, std::int64_t id,
                                                  absl::Time deadline) = 0;

  // Counts the contents of the table on the node; ages are up to `step`. Blocks.
  virtual absl::StatusOr<TableSurvey> SurveyTable(TableId table, std::uint64_t step,
                                                  absl::Time deadline) = 0;

  // Rows of whole buckets of a ZCH table.
  using RowRange = std::pair<std::int64_t, std::int64_t>;
  struct SweepQuery {
    TableId table{};
    bool expired = false;           // True: ids whose TTL is over at `step`; false: those idle
    std::uint64_t before_step = 0;  // since before this one.
    std::uint64_t step = 0;         // Step of the evictions.
    std::vector<RowRange> rows = {};
  };
  struct SweepReply {
    std::uint64_t evicted = 0;
    std::vector<RowRange> swept;  // The part of `rows` that is on this node and not on the move.
  };
  virtual absl::StatusOr<SweepReply> SweepTable(const SweepQuery& query, absl::Time deadline) = 0;

  // How far a reader of evictions has come; `log` 0: at the beginning.
  struct EvictionsPosition {
    std::uint64_t log = 0;
    std::uint64_t next = 0;
  };
  struct Evictions {
    std::uint64_t missed = 0;              // Before `rows`, not kept long enough.
    std::vector<EvictedRow> rows;          // Without weights and state: those are in
    std::span<const std::byte> row_block;  // the row block, in the same order.
  };
  using EvictionsSink = std::function<absl::Status(const Evictions&)>;
  // Calls `sink` on this thread from `position` on, which is moved, until it returns an error,
  // there is nothing more (without `follow`), or the deadline has come. Blocks.
  virtual absl::Status ReadEvictions(TableId table, bool follow, EvictionsPosition& position,
                                     absl::Time deadline, const EvictionsSink& sink) = 0;

  // Gives up the connection: calls in flight and later ones fail with Unavailable.
  virtual void Close() = 0;
};

}  // namespace embla::client
