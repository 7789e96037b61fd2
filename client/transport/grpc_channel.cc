#include "client/transport/grpc_channel.h"

#include <algorithm>
#include <chrono>

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/wire/callback_queue.h"

namespace embla::client {
namespace {

constexpr int kMessageBytesMax = 512 << 20;  // Frames and limits are far below.

// A value that is set twice keeps the first one.
grpc::ChannelArguments ArgumentsWith(int ping_after_ms, int ping_timeout_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // Retries are decided above, with the plan in hand.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Two channels to one address are two connections.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A machine that vanished without a word.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping_after_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping_timeout_ms);
  return arguments;
}

std::shared_ptr<grpc::Channel> Make(const std::string& address, const TlsPtr& tls,
                                    const ExpectedPeer& peer,
                                    const grpc::ChannelArguments& arguments) {
  wire::KeepCallbackQueue();
  return grpc::CreateCustomChannel(address, ChannelCredentialsTo(tls, peer), arguments);
}

}  // namespace

absl::StatusOr<TlsPtr> LoadTls(const TlsOptions& options) {
  return Tls::Load({.certificate = options.certificate,
                    .key = options.key,
                    .authorities = options.authorities,
                    .revoked = options.revoked,
                    .token = options.token});
}

std::string DescribeServer(const std::string& kind, const std::string& address, const TlsPtr& tls) {
  if (tls == nullptr) return absl::StrCat(kind, " ", address);
  return absl::StrCat(kind, " ", address, " over TLS as ", UriOf(tls->identity()));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const TlsPtr& tls,
                                           const ExpectedPeer& peer) {
  return Make(address, tls, peer, ArgumentsWith(20'000, 10'000));
}

std::shared_ptr<grpc::Channel> MakeMemberChannel(const std::string& address, const TlsPtr& tls,
                                                 const ExpectedPeer& peer) {
  grpc::ChannelArguments arguments = ArgumentsWith(1'500, 1'500);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return Make(address, tls, peer, arguments);
}

grpc::Status AnswerOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::CANCELLED) return status;
  return {grpc::StatusCode::UNAVAILABLE, "the server stopped before it answered"};
}

std::chrono::system_clock::time_point DeadlineOf(absl::Time deadline) {
  // gRPC goes by the machine's clock.
  const absl::Time at = absl::Now() + (deadline - Clock::Real().Now());
  // Far beyond every call, and within what gRPC can represent.
  return absl::ToChronoTime(std::min(at, absl::FromUnixSeconds(std::int64_t{1} << 33)));
}

}  // namespace embla::client
