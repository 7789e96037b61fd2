// One shard server: its devices, its tables, its current plan. The RPC room calls exactly this.
//
// Thread safety: every public method may be called from any thread.
// Lock order: plan_mu_, then submit_mu_.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "core/rows/request.h"

namespace embla {

struct ShardNodeOptions {
  std::string name;
  std::vector<DeviceSpec> devices;
  std::uint32_t threads_per_device = 1;
  std::size_t queued_requests_max_per_device = 1024;
  std::size_t queued_bytes_max = std::size_t{512} << 20;
};

struct LookupResult {
  PlanVersion plan_version{};
  Buffer rows;  // Output rows of all parts in order, in the batch's wire dtype.
};

struct UpdateResult {
  PlanVersion plan_version{};
  bool duplicate = false;
};

using LookupDone = std::function<void(absl::StatusOr<LookupResult>)>;
using UpdateDone = std::function<void(absl::StatusOr<UpdateResult>)>;

// Sends an ordered update or a snapshot chunk of a replicated table to another node; implemented by
// server/rpc, used by the node that holds the table's primary copy. See replicator.h.
class ReplicaTransport;

class ShardNode {
 public:
  static absl::StatusOr<std::unique_ptr<ShardNode>> Create(ShardNodeOptions options,
                                                           BufferPool& pool);
  virtual ~ShardNode() = default;

  // Allocates what is new in `plan` for this node, applies changed hyper-parameters and frees what
  // is gone. Requests go on meanwhile against the old plan. Plans older than the current one are
  // ignored. Errors: ResourceExhausted (no memory; nothing changed), InvalidArgument.
  virtual absl::Status InstallPlan(PlanPtr plan, NodeId self) = 0;
  virtual PlanPtr plan() const = 0;

  // Queues the batch on the devices it touches and returns; `done` runs once, on a device thread
  // or, for early errors, on the caller's. The memory behind `batch` must live until then:
  // `keep_alive` is held for that. Expired batches are dropped from the queue.
  virtual void Lookup(LookupBatch batch, Buffer keep_alive, absl::Time deadline,
                      LookupDone done) = 0;
  virtual void Update(UpdateBatch batch, Buffer keep_alive, absl::Time deadline,
                      UpdateDone done) = 0;

  struct RowsQuery {
    TableId table{};
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    std::vector<RowId> row_ids;  // If not empty, these instead of the range.
    bool with_state = false;
  };
  // Calls `sink` with encoded row blocks (core/rows/row_block.h) of at most about 1 MiB, on the
  // caller's thread, until all rows held here are sent or `sink` returns an error.
  virtual absl::Status ReadRows(const RowsQuery& query,
                                const std::function<absl::Status(Buffer)>& sink) = 0;

  virtual std::vector<std::int64_t> device_used_bytes() const = 0;
};

}  // namespace embla
