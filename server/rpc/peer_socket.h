// A data socket to another node, by which it is sent the updates of copied tables, and messages of
// moves (docs/data_sockets.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/socket/frame_socket.h"
#include "core/wire/frame.h"
#include "core/wire/peer_proof.h"
#include "core/wire/replicate_codec.h"
#include "server/mover/move_transport.h"
#include "server/shard/replica_transport.h"

namespace embla {

// Thread safety: every public method may be called from any thread.
class PeerSocket final : public FrameSocket::Owner,
                         public std::enable_shared_from_this<PeerSocket> {
 public:
  // On the poller's thread, or within Start.
  struct Events {
    // Once: the node takes messages. Null: it does not.
    absl::AnyInvocable<void(const std::shared_ptr<PeerSocket>&)> on_ready;
    // Last of all.
    absl::AnyInvocable<void(const std::shared_ptr<PeerSocket>&)> on_over;
  };

  explicit PeerSocket(Events events) : events_(std::move(events)) {}

  // Shows `ticket`, once `link` is ready. Whoever owns it keeps it until
  // on_over, and `poller` longer.
  void Start(std::unique_ptr<Link> link, const std::string& ticket, Poller& poller,
             absl::Duration timeout);
  // Sends updates as ReplicaTransport does. A node that does not answer in time loses the
  // connection, and with it what else is not answered. False: it is over, and nothing was sent.
  bool Send(std::span<const ReplicaMessage> messages, const wire::PeerProof& proof,
            absl::Duration timeout, ReplicaDone done);
  // Likewise a message of a move. False: `message` is as it was.
  bool Send(PeerMessage&& message, const wire::PeerProof& proof, absl::Duration timeout,
            MoveTransport::Done done);
  // Takes nothing more.
  void Shutdown();

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override;
  absl::Status EndFrame() override;
  void OnSent() override {}
  void OnClosed(const absl::Status& why) override;

 private:
  // Messages without an answer, by sequence; the ticket is 0.
  struct Pending {
    absl::Time late;  // When the node is given up.
    ReplicaDone done;
  };

  struct Place {
    std::shared_ptr<FrameSocket> socket;  // Null: it is over.
    std::uint64_t sequence = 0;
  };
  // Where the next message goes, whose answer `done` waits for.
  Place NextPlace(absl::Duration timeout, ReplicaDone done);
  // Adds what waits for an answer. False: it is over.
  bool Await(std::uint64_t sequence, Pending pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ReplicaDone TakePending(std::uint64_t sequence);
  // Has LookIfLate run, no later than then.
  void LookAt(absl::Time when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LookIfLate();

  Events events_;
  wire::ReplicateAnswer answer_;  // The receiving thread's: its frame comes now; 0: the ticket's.

  Mutex mu_;
  std::shared_ptr<FrameSocket> socket_ ABSL_GUARDED_BY(mu_);  // Null before Start.
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time looks_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::uint64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
