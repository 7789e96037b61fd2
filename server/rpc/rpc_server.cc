#include "server/rpc/rpc_server.h"

#include <utility>

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/wire/callback_queue.h"
#include "server/rpc/listen_address.h"

namespace embla {
namespace {

void SetArguments(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  builder.SetMaxSendMessageSize(-1);  // Replies are bounded by the limits on requests.
  // Two servers on one port would each get half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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
  wire::KeepCallbackQueue();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetArguments(builder, options);
  int port = -1;
  builder.AddListeningPort(listen.text, grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* const service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port <= 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen.text, ": the address is in use or not ours"));
  }
  server->GetHealthCheckService()->SetServingStatus(true);
  std::string address = listen.WithPort(port);
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), std::move(address)));
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->SetServingStatus(false);
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  server_.reset();
}

std::shared_ptr<grpc::Channel> RpcServer::InProcessChannel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

}  // namespace embla
