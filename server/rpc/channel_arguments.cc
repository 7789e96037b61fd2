#include "server/rpc/channel_arguments.h"

#include <algorithm>

namespace embla {
namespace {

// A value that is set twice keeps the first one.
grpc::ChannelArguments ArgumentsWith(int ping_after_ms, int ping_timeout_ms,
                                     absl::Duration backoff_max) {
  const int backoff_max_ms =
      static_cast<int>(std::max<std::int64_t>(absl::ToInt64Milliseconds(backoff_max), 100));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  // The callers of a channel repeat messages themselves: gRPC need not keep any for that.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff_max_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping_after_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping_timeout_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Links of one process must not share a connection by accident of equal arguments.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

grpc::ChannelArguments PeerChannelArguments(absl::Duration backoff_max) {
  return ArgumentsWith(10'000, 5'000, backoff_max);
}

grpc::ChannelArguments MemberChannelArguments(absl::Duration backoff_max) {
  return ArgumentsWith(1'500, 1'500, backoff_max);
}

}  // namespace embla
