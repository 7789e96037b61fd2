// How the node that orders a replicated table's updates talks to the nodes with the other copies.
// Implemented by server/rpc (DataService.Replicate); called by Replicator, answered by
// ShardNode::ApplyReplicated on the other side. docs/replication.md has the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "server/shard/decision.h"

namespace embla {

// Asks where the copy is.
struct CopyProbe {
  TableId table{};
  std::uint64_t reign = 0;  // Random, one per primary process start; never 0.
  std::uint64_t order = 0;  // The primary's.
};

// From a table's primary to a copy: a question, or a decision that the copy is to follow.
struct ReplicaMessage {
  // In the order of the alternatives.
  enum class Kind : std::uint8_t { kProbe = 0, kUpdate = 1, kRows = 2 };

  std::variant<CopyProbe, CopiedUpdate, CopiedRows> content = {};
  PlanVersion plan_version{};  // The newest that the primary has installed.
  PlanVersion term{};          // The plan since which it is the primary.
  std::uint64_t life = 0;      // The life that the copy last reported; 0: not known.
  // A copy in this life that has done what the message says has every acknowledged update, now and
  // later: it serves lookups, and may become the primary.
  bool serves = false;

  Kind kind() const { return static_cast<Kind>(content.index()); }
  TableId table() const {
    return std::visit([](const auto& each) { return each.table; }, content);
  }
  std::uint64_t reign() const {
    return std::visit([](const auto& each) { return each.reign; }, content);
  }
  std::uint64_t order() const {
    return std::visit([](const auto& each) { return each.order; }, content);
  }
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
  // in that order. They live until `done` is called with the answer to the last one: exactly once,
  // on any thread but never inside Send, at the latest soon after `timeout`. What is sent by
  // several calls may overtake each other.
  virtual void Send(const NodeSpec& node, std::span<const ReplicaMessage> messages,
                    absl::Duration timeout, ReplicaDone done) = 0;
};

}  // namespace embla
