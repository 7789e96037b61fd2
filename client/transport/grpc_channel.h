// How every connection of the client is made.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/time/time.h"

namespace embla::client {

// Plaintext; connects lazily, and again for ever, backing off to at most a second.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// The deadline as gRPC takes it.
std::chrono::system_clock::time_point DeadlineOf(absl::Time deadline);

}  // namespace embla::client
