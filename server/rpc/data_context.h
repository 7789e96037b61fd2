// The services that the handlers of the data service share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/metrics/instruments.h"
#include "core/metrics/metrics.h"
#include "core/rows/request.h"
#include "core/tls/identity.h"
#include "core/tls/tls.h"
#include "core/wire/request_codec.h"
#include "server/mover/move_transport.h"
#include "server/rpc/in_flight_budget.h"
#include "server/rpc/peer_gate.h"
#include "server/rpc/request_trace.h"
#include "server/rpc/trainer_quotas.h"
#include "server/shard/shard_node.h"

namespace embla {

struct DataServiceOptions {
  wire::RequestLimits limits = {};
  absl::Duration deadline_default = absl::Seconds(30);  // Deadline of a request that states none.
  absl::Duration deadline_max = absl::Minutes(10);  // No request waits longer, whatever it states.
  // Per stream. A stream over a limit is not read until replies have been sent; one request is
  // always taken.
  std::uint32_t stream_requests_max = 1024;
  std::size_t stream_bytes_max = std::size_t{64} << 20;  // Requests and their replies.
  bool data_sockets = true;  // Streams may go on by sockets of their own (data_sockets.h).
  TlsPtr tls = nullptr;      // The port's; null: plaintext.
  // Data sockets of other nodes end at this age, as connections of gRPC do; 0: never.
  absl::Duration connection_age = absl::ZeroDuration();
  // The bound of all requests and replies; a request beyond it is refused with RESOURCE_EXHAUSTED.
  InFlightLimits in_flight = {};
  std::uint32_t read_threads = 8;  // ReadRows calls that run at once.
  std::size_t reads_queued_max = 64;
  std::size_t read_ids_max = std::size_t{4} << 20;
  std::shared_ptr<TrainerQuotaFile> trainer_quotas = nullptr;  // Null: nobody has a quota.
  absl::Duration read_stall_max = absl::Seconds(60);  // A reader that takes nothing is cut off.
  absl::Duration read_stall_beside_others_max = absl::Seconds(2);  // The same, while others wait.

  absl::Status Validate() const;
};

// Takes a message of a move in, without waiting. Not OK: it is dropped, and the sender is told.
using MoveInbox = std::function<absl::Status(PeerMessage)>;

// The memory of a request in flight, and its part of its trainer's quota.
struct Admission {
  Hold memory;
  Hold quota;
};

// Thread safety: as its members; all of them may be used from any thread.
struct DataContext {
  DataContext(ShardNode& node, BufferPool& pool, Metrics* metrics,
              const DataServiceOptions& options);

  // PermissionDenied: `caller` may not use one of the tables (CheckTable), by the node's plan.
  absl::Status CheckTables(const std::optional<Identity>& caller,
                           std::span<const TableId> tables) const;
  absl::Status CheckTables(const std::optional<Identity>& caller, const LookupBatch& batch) const;
  absl::Status CheckTables(const std::optional<Identity>& caller, const UpdateBatch& batch) const;

  // Whether a message comes from the node that it names. `caller` as in CheckTables. Errors: those
  // of PeerGate::Check, and PermissionDenied.
  absl::Status CheckPeer(const wire::PeerProof& proof, const std::optional<Identity>& caller) const;

  // Takes a message of a move in. Errors: the inbox's; Unimplemented: there is none.
  absl::Status TakeMove(PeerMessage message) const;

  // ResourceExhausted: there is no memory for the request, or a quota is used up.
  absl::StatusOr<Admission> Admit(const std::optional<Identity>& caller,
                                  const InFlightHolder& holder, std::size_t rows,
                                  std::size_t bytes);

  // `status` as it is answered: RESOURCE_EXHAUSTED with a hint. Unless it has one, that is how long
  // requests take at present, since what holds memory and places in queues now is gone by then.
  absl::Status Answer(const absl::Status& status) const;

  // A call with this result is over. Bytes are message bytes.
  void Count(MethodMetrics& method, const absl::Status& status, absl::Time start,
             std::size_t request_bytes, std::size_t reply_bytes) const;

  ShardNode& node;   // Not owned; outlives this object.
  BufferPool& pool;  // Not owned; outlives this object.
  const DataServiceOptions options;
  const Clock& clock;
  std::unique_ptr<PeerGate> peers;  // Null: this node has no peers.
  MoveInbox move_inbox;             // Null: it takes no part in moves.
  const ShardMetrics shard;
  InFlightBudget in_flight;
  TrainerQuotas quotas;
  mutable std::atomic<double> mean_seconds = 0;  // Time of requests that were answered lately.
  RequestTraces traces;
  MethodMetrics lookup;
  MethodMetrics update;
  MethodMetrics read_rows;
  MethodMetrics replicate;
  MethodMetrics sync;
  MethodMetrics move;
};

}  // namespace embla
