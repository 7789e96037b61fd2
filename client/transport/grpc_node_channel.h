// NodeChannel over gRPC.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "client/include/embla/client.h"
#include "client/transport/node_channel.h"
#include "client/transport/timer.h"
#include "core/socket/poller.h"
#include "core/tls/tls.h"

namespace embla::client {

struct GrpcNodeOptions {
  Transport transport = Transport::kAuto;
  int connections = 1;
  std::size_t in_flight_bytes_max = std::size_t{64} << 20;
  // With kAuto and kTcp; not owned, outlives the channel. Null: as kStream.
  Poller* poller = nullptr;
  TlsPtr tls = nullptr;   // Null: plaintext.
  std::string name = {};  // Over TLS, the node's; empty: any node's.
};

// `address` is host:port or unix:/path. Connects with the first call. The channel's destructor
// waits for its calls. `timer` is not owned; outlives the channel.
std::unique_ptr<NodeChannel> MakeGrpcNodeChannel(const std::string& address,
                                                 const GrpcNodeOptions& options, Timer& timer);

}  // namespace embla::client
