// How servers call each other: one connection of gRPC per peer address, and beside it, for updates
// of copied tables and messages of moves, a data socket where the peer offers one
// (server/rpc/peer_socket.h).
//
// Before the first message to an address the process there is greeted (server/rpc/peer_gate.h);
// messages wait for that. A process that was started again refuses the next message, which its
// sender takes for lost, and is greeted again before the one after.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/base/clock.h"
#include "core/socket/poller.h"
#include "core/tls/tls.h"
#include "core/wire/peer_proof.h"
#include "server/mover/move_transport.h"
#include "server/rpc/node_key.h"
#include "server/shard/replica_transport.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class PeerChannel final : public ReplicaTransport, public MoveTransport {
 public:
  // `key` and `clock` are not owned and outlive the channel. `name` is that of this node. Without
  // `tls` messages travel in plaintext.
  PeerChannel(const NodeKey& key, std::string name, const Clock& clock = Clock::Real(),
              TlsPtr tls = nullptr);
  // Every `done` of a replica's message must have run.
  ~PeerChannel() override;

  void Send(const NodeSpec& node, std::span<const ReplicaMessage> messages, absl::Duration timeout,
            ReplicaDone done) override;
  void Send(const std::string& address, PeerMessage message, MoveTransport::Done done) override;

  // To how many addresses there are channels.
  std::size_t channels() const;

  // Ends every call, now and later, at once with an error: this process is about to end.
  void CancelCalls();

 private:
  class Peers;

  static void SendTo(const std::shared_ptr<Peers>& peers, const std::string& address,
                     const wire::PeerProof& proof, std::span<const ReplicaMessage> messages,
                     absl::Duration timeout, const ReplicaDone& done);

  std::unique_ptr<Poller> poller_;  // For the sockets; null: there are none.
  std::shared_ptr<Peers> peers_;    // Shared with the calls in flight.
};

}  // namespace embla
