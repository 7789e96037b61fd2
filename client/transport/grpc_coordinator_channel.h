// CoordinatorChannel over gRPC.
#pragma once

#include <memory>
#include <string>

#include "client/transport/coordinator_channel.h"
#include "core/tls/tls.h"

namespace embla::client {

// Connects with the first call, and again for ever. `addresses`: one, or several with commas in
// between; each call and the watch go to the one that leads.
std::unique_ptr<CoordinatorChannel> MakeGrpcCoordinatorChannel(const std::string& addresses,
                                                               const TlsPtr& tls = nullptr);

}  // namespace embla::client
