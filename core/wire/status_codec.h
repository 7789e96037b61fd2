// absl::Status <-> gRPC status: the same sixteen codes, the same message, the same retry hint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace embla::wire {

// Messages longer than this are cut: gRPC sends them as metadata, which is limited.
inline constexpr std::size_t kStatusMessageBytesMax = 2048;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// A status that travels as a google.rpc.Code and a message; an unknown code is Unknown.
absl::Status StatusFromCode(std::int32_t code, std::string_view message);

// `message`, cut to kStatusMessageBytesMax at a character border, every byte valid UTF-8.
std::string StatusMessage(const absl::Status& status);

}  // namespace embla::wire
