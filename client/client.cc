#include "client/include/embla/client.h"

#include <memory>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/transport/address.h"
#include "client/transport/grpc_channel.h"
#include "client/transport/grpc_coordinator_channel.h"
#include "client/transport/grpc_node_channel.h"
#include "client/transport/timer.h"
#include "core/base/status_macros.h"

namespace embla::client {
namespace {

std::string DefaultName() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '?';
  return absl::StrCat(host, ":", getpid());
}

template <typename Value>
absl::Status OutOfBounds(const char* field, const Value& value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ", allowed));
}

}  // namespace

absl::Status ConnectOptions::Validate() const {
  if (coordinator.empty()) return absl::InvalidArgumentError("coordinator is empty");
  if (timeout <= absl::ZeroDuration()) {
    return OutOfBounds("timeout", absl::FormatDuration(timeout), "positive");
  }
  if (connections_per_node < 1 || connections_per_node > 64) {
    return OutOfBounds("connections_per_node", connections_per_node, "1 to 64");
  }
  if (in_flight_bytes_max_per_node < 1) {
    return OutOfBounds("in_flight_bytes_max_per_node", in_flight_bytes_max_per_node, "positive");
  }
  if (!(retry_budget_ratio >= 0 && retry_budget_ratio <= 1)) {
    return OutOfBounds("retry_budget_ratio", retry_budget_ratio, "0 to 1");
  }
  if (!(retry_budget_per_second >= 0 && retry_budget_per_second <= 1e6)) {
    return OutOfBounds("retry_budget_per_second", retry_budget_per_second, "0 to 1,000,000");
  }
  if (threads < 1 || threads > 256) return OutOfBounds("threads", threads, "1 to 256");
  if (rank.has_value() != (ranks > 0)) {
    return absl::InvalidArgumentError("rank and ranks are stated together, or none of them is");
  }
  if (rank.has_value() && *rank >= ranks) {
    return OutOfBounds("rank", *rank, absl::StrCat("below ranks, ", ranks));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ConnectOptions options) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_RETURN_IF_ERROR(CheckAddresses(options.coordinator));
  if (options.name.empty()) options.name = DefaultName();
  EMBLA_ASSIGN_OR_RETURN(const TlsPtr tls, LoadTls(options.tls));
  ClientImpl::World world;
  // Without descriptors for it, calls go by gRPC alone.
  if (options.transport == Transport::kAuto || options.transport == Transport::kTcp) {
    world.poller = Poller::Start().value_or(nullptr);
  }
  const GrpcNodeOptions every{
      .transport = options.transport,
      .connections = options.connections_per_node,
      .in_flight_bytes_max = static_cast<std::size_t>(options.in_flight_bytes_max_per_node),
      .poller = world.poller.get(),
      .tls = tls};
  world.timer = std::make_unique<ThreadTimer>();
  world.coordinator = MakeGrpcCoordinatorChannel(options.coordinator, tls);
  world.connect = [every](const NodeSpec& node, Timer& timer) {
    GrpcNodeOptions options = every;
    options.name = node.name;
    return MakeGrpcNodeChannel(node.address, options, timer);
  };
  return ClientImpl::Open(std::move(options), std::move(world));
}

PendingLookup Client::Prefetch(std::vector<FeatureLookup> features, const CallOptions& options) {
  auto promise = std::make_unique<std::promise<absl::Status>>();
  PendingLookup pending(promise->get_future());
  // A std::function can be copied, so it cannot own the promise; it runs exactly once.
  LookupAsync(std::move(features), options, [raw = promise.release()](absl::Status status) {
    const std::unique_ptr<std::promise<absl::Status>> owned(raw);
    owned->set_value(std::move(status));
  });
  return pending;
}

}  // namespace embla::client
