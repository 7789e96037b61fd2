// How every connection of the client is made.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/tls.h"
#include "core/tls/tls.h"

namespace embla::client {

// The certificates of a client; null: plaintext. Errors: those of Tls::Load.
absl::StatusOr<TlsPtr> LoadTls(const TlsOptions& options);

// Connects lazily, and again for ever, backing off to at most a second. Over TLS only with a server
// that is `peer`.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const TlsPtr& tls = nullptr,
                                           const ExpectedPeer& peer = {});

// The same to one of several coordinators: notices in four seconds that it is gone or stopped.
std::shared_ptr<grpc::Channel> MakeMemberChannel(const std::string& address, const TlsPtr& tls,
                                                 const ExpectedPeer& peer);

// For errors: the address, and as whom it is called.
std::string DescribeServer(const std::string& kind, const std::string& address, const TlsPtr& tls);

// UNAVAILABLE for CANCELLED: a server that stops cancels what it has not answered. Not for calls
// that this side may cancel.
grpc::Status AnswerOf(const grpc::Status& status);

// The deadline as gRPC takes it.
std::chrono::system_clock::time_point DeadlineOf(absl::Time deadline);

}  // namespace embla::client
