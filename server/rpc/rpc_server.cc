#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <utility>

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/host_memory.h"
#include "core/base/status_macros.h"
#include "core/wire/callback_queue.h"
#include "server/rpc/call_metrics.h"
#include "server/rpc/listen_address.h"
#include "server/rpc/listening_socket.h"

namespace embla {
namespace {

std::size_t QuarterOfMemory() {
  return std::max(static_cast<std::size_t>(FindHostMemory().bytes) / 4, std::size_t{1} << 30);
}

void SetArguments(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  builder.SetMaxSendMessageSize(-1);  // Replies are bounded by the limits on requests.
  // 200 KB of gzip can be 200 MB of message, and rows hardly get smaller.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetResourceQuota(grpc::ResourceQuota("embla").Resize(
      options.grpc_bytes_max == 0 ? QuarterOfMemory() : options.grpc_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.connections.open_calls_max));
  // The acceptor reads there how many streams a peer has reset.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);
  // A peer that vanished without a word is noticed within 40 s.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, std::span<grpc::Service* const> services) {
  EMBLA_ASSIGN_OR_RETURN(const ListenAddress listen,
                         CheckListenAddress(options.listen, options.insecure));
  EMBLA_ASSIGN_OR_RETURN(ListeningSockets listening, Listen(listen));
  const std::string address = listen.WithPort(listening.port);
  wire::KeepCallbackQueue();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetArguments(builder, options);
  for (grpc::Service* const service : services) builder.RegisterService(service);
  std::unique_ptr<RpcServer> server(new RpcServer(address, options));
  builder.RegisterCallbackGenericService(&server->unknown_calls_);
  if (options.metrics != nullptr && !options.counted_services.empty()) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> counters;
    counters.push_back(std::make_unique<CallMetrics>(*options.metrics, options.counted_services));
    builder.experimental().SetInterceptorCreators(std::move(counters));
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC does not start a server");
  server->SetServing(options.is_serving);
  EMBLA_ASSIGN_OR_RETURN(
      server->acceptor_,
      ConnectionAcceptor::Start(
          std::move(listening), options.connections, options.metrics,
          [grpc_server = server->server_.get(), &shares = server->shares_](int fd) {
            shares.Open(fd);
            grpc::AddInsecureChannelFromFd(grpc_server, fd);
          }));
  return server;
}

RpcServer::RpcServer(std::string address, const RpcServerOptions& options)
    : shares_(options.shares, options.metrics),
      unknown_calls_(options.port),
      address_(std::move(address)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(bool is_serving) {
  server_->GetHealthCheckService()->SetServingStatus(is_serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->SetServingStatus(false);
  acceptor_.reset();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  server_.reset();
}

std::shared_ptr<grpc::Channel> RpcServer::InProcessChannel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

}  // namespace embla
