// Updates of copied tables, and messages of moves, that another node sends by a data socket
// (docs/data_sockets.md). Each shows its proof, as a call of DataService.Replicate or Move does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "core/socket/frame_socket.h"
#include "core/wire/frame.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/request_memory.h"
#include "server/rpc/data_context.h"
#include "server/shard/replica_transport.h"

namespace embla {

class DataSockets;

// Lives until its connection is over and the node has answered all that came by it.
class PeerStream final : public FrameSocket::Owner,
                         public std::enable_shared_from_this<PeerStream> {
 public:
  // Takes messages from `link`, which has shown a ticket. `context` and `sockets` outlive it. On
  // the poller's thread. `caller` as in DataContext::CheckPeer.
  static void Serve(std::unique_ptr<Link> link, Poller& poller, DataContext& context,
                    DataSockets& sockets, std::optional<Identity> caller);
  ~PeerStream();

  // Ends the connection.
  void Abort() { socket_->Shutdown(); }

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override;
  absl::Status EndFrame() override;
  void OnSent() override {}
  void OnClosed(const absl::Status& why) override;

 private:
  // A message whose frame has begun.
  struct Incoming {
    wire::ReplicateText text;
    std::size_t bytes = 0;
    absl::Time start;
    std::optional<wire::RequestMemory> memory;  // An update's; nothing: it is refused.
    absl::StatusOr<Buffer> rows = Buffer();     // A move's; an error: it is refused.
  };
  // One whose frame is here, until it is answered.
  struct Arrived {
    wire::ReplicateOrder order;
    bool is_move = false;
    std::size_t bytes = 0;
    absl::Time start;
  };

  PeerStream(DataContext& context, DataSockets& sockets, std::optional<Identity> caller);

  // Find out where its arrays go. Not OK: it is refused, and they take no memory.
  absl::Status Check(const wire::PeerProof& proof, std::size_t bytes) const;
  absl::Status PlaceUpdate(Incoming& incoming, std::span<const wire::FrameArray> arrays,
                           std::span<std::byte*> places);
  absl::StatusOr<Buffer> PlaceMove(const Incoming& incoming,
                                   std::span<const wire::FrameArray> arrays,
                                   std::span<std::byte*> places);
  void EndUpdate(Incoming incoming, const Arrived& arrived);
  void EndMove(Incoming incoming, const Arrived& arrived);
  void Answer(const Arrived& arrived, const absl::StatusOr<ReplicaAck>& ack);
  void ReadMore();

  DataContext& context_;  // Not owned; outlives this object.
  DataSockets& sockets_;  // Likewise.
  const std::optional<Identity> caller_;
  const absl::Time until_;
  std::shared_ptr<FrameSocket> socket_;
  std::shared_ptr<PeerStream> self_;  // Until the connection is over.
  std::optional<Incoming> incoming_;  // The receiving thread's.

  Mutex mu_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;  // The next frame is wanted, or here.
  std::size_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t in_flight_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace embla
