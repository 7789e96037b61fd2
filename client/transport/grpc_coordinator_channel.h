// CoordinatorChannel over gRPC.
#pragma once

#include <memory>
#include <string>

#include "client/transport/coordinator_channel.h"

namespace embla::client {

// Connects with the first call, and again for ever.
std::unique_ptr<CoordinatorChannel> MakeGrpcCoordinatorChannel(const std::string& address);

}  // namespace embla::client
