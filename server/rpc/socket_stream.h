// The requests of one data socket (docs/data_sockets.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/socket/frame_socket.h"
#include "core/wire/frame.h"
#include "core/wire/seal.h"
#include "server/rpc/data_sockets.h"
#include "server/rpc/request_stream.h"
#include "server/table/finite_check.h"

namespace embla {

class SocketStream final : private RequestStream, private FrameSocket::Owner {
 public:
  // Takes requests from `link`, which has shown the ticket, in place of `stream`, which has been
  // told (BeginBeside) and is told when it is over. Deletes itself. Everything else that is given
  // outlives `stream`. On the poller's thread.
  static void Serve(std::unique_ptr<Link> link, Poller& poller, DataContext& context,
                    OpenStreams& open, DataSockets& sockets, const std::string& ticket,
                    RequestStream& stream);

  using RequestStream::Drain;
  // Ends the connection.
  void Abort() { socket_->Shutdown(); }

 private:
  SocketStream(DataContext& context, OpenStreams& open, DataSockets& sockets,
               const std::string& ticket, RequestStream& stream)
      : RequestStream(context, open, stream.caller(), context.shard.data_sockets),
        sockets_(sockets),
        ticket_(ticket),
        stream_(stream) {}
  // Only now is nothing of it on a device any more.
  ~SocketStream() override { stream_.EndBeside(); }

  void StartRead() override { socket_->Want(); }
  void StartWrite(wire::SplitMessage message) override;
  std::size_t writes_max() const override { return std::numeric_limits<std::size_t>::max(); }
  void Finish(const absl::Status&) override { socket_->Shutdown(); }

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override;
  void Filled(std::size_t array, std::size_t filled) override;
  absl::Status EndFrame() override;
  void OnSent() override;
  void OnClosed(const absl::Status& why) override;

  // The request whose frame comes now.
  struct Incoming {
    Arrival arrival;
    wire::StreamRequest request;
    std::optional<wire::RequestMemory> memory;  // Unless its arrays are dropped.
    std::size_t gradients_array = 0;
    std::optional<ArrivingNumbers> gradients;
    std::uint64_t seal = wire::Seal::kWhole;
  };

  DataSockets& sockets_;  // Not owned; outlives this object.
  const std::string ticket_;
  RequestStream& stream_;  // Not owned; outlives this object.
  std::shared_ptr<FrameSocket> socket_;
  bool is_welcomed_ = false;  // The frame that answers the ticket is sent, which is no reply.
  std::optional<Incoming> incoming_;  // The poller's thread's.
};

}  // namespace embla
