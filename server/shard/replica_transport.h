// How the node that orders a replicated table's updates talks to the nodes with the other copies.
// Implemented by server/rpc (DataService.Replicate); called by Replicator, answered by
// ShardNode::ApplyReplicated on the other side. docs/replication.md has the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "core/rows/request.h"
#include "server/migration/unit_windows.h"

namespace embla {

struct ReplicaMessage {
  enum class Kind : std::uint8_t {
    kProbe = 0,     // Asks where the replica is; `order` is the primary's.
    kUpdate = 1,    // `order` is this update's place in the primary's order, from 1.
    kSnapshot = 2,  // Rows of a copy of the whole table, as they are after update `order`.
  };

  Kind kind = Kind::kProbe;
  TableId table{};
  std::uint64_t reign = 0;  // Random, one per primary process start; never 0.
  std::uint64_t order = 0;
  PlanVersion plan_version{};  // The newest that the primary has installed.
  PlanVersion term{};          // The plan since which it is the primary.
  std::uint64_t life = 0;      // The life that the copy last reported; 0: not known.
  // A copy in this life that has done what the message says has every acknowledged update, now and
  // later: it serves lookups, and may become the primary.
  bool serves = false;
  UpdateBatch update;  // kUpdate: parts of `table` only.
  // Keeps what `update` views, for a sender that gives it to others. Null: nobody shares it.
  std::shared_ptr<const void> memory;
  Buffer row_block;     // kSnapshot: core/rows/row_block.h, with state.
  bool first = false;   // kSnapshot: forget what was received of an older copy.
  bool last = false;    // kSnapshot: the copy is complete.
  UnitWindows windows;  // kSnapshot, with `last`: which updates the rows have.
};

struct ReplicaAck {
  std::uint64_t order = 0;     // The last update of this reign that the replica has applied.
  bool need_snapshot = false;  // The replica follows another reign or has a gap: send a copy.
  std::uint64_t life = 0;      // Random; another one whenever its rows begin anew.
  bool gone = false;           // There is no copy there, by the message's plan or a newer one.
  // To a probe: how far before its turn an update may come. 0, as builds say that do not know of
  // it: one is sent when the one before it is answered.
  std::uint64_t early_max = 0;
  // By the transport: how many updates may be sent together. 0: 1.
  std::uint64_t updates_max = 0;
};

using ReplicaDone = std::function<void(absl::StatusOr<ReplicaAck>)>;

// Thread safety: Send may be called from any thread.
class ReplicaTransport {
 public:
  virtual ~ReplicaTransport() = default;

  // Sends `messages` to `node`: one, or updates of a table that follow each other, which are taken
  // in that order. They and the memory that they view live until `done` is called with the answer
  // to the last one: exactly once, on any thread but never inside Send, at the latest soon after
  // `timeout`. What is sent by several calls may overtake each other.
  virtual void Send(const NodeSpec& node, std::span<const ReplicaMessage> messages,
                    absl::Duration timeout, ReplicaDone done) = 0;
};

}  // namespace embla
