#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include <grpc/support/log.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/host_memory.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/wire/callback_queue.h"
#include "server/rpc/call_metrics.h"
#include "server/rpc/listen_address.h"
#include "server/rpc/listening_socket.h"
#include "server/rpc/peer_address.h"

namespace embla {
namespace {

std::size_t QuarterOfMemory() {
  return std::max(static_cast<std::size_t>(FindHostMemory().bytes) / 4, std::size_t{1} << 30);
}

constexpr absl::Duration kLongestCall = absl::Minutes(10);

int Milliseconds(absl::Duration duration) {
  constexpr absl::Duration kMax = absl::Hours(24 * 20);
  return static_cast<int>(absl::ToInt64Milliseconds(std::min(duration, kMax)));
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
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(options.ping_interval_min));
  if (options.tls == nullptr) return;
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  if (options.connection_age <= absl::ZeroDuration()) return;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(options.connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             Milliseconds(std::min(options.connection_age, kLongestCall)));
}

// gRPC gives reflection to every server of a program that links it.
class ReflectionIf final : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionIf(bool has_reflection) : has_reflection_(has_reflection) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto wanted = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    std::erase_if(*plugins, [&](const auto& each) { return each->name() == wanted->name(); });
    if (has_reflection_) plugins->push_back(std::move(wanted));
  }

 private:
  const bool has_reflection_;
};

// Interceptors of every call.
void Watch(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
  if (options.metrics != nullptr && !options.counted_services.empty()) {
    watchers.push_back(std::make_unique<CallMetrics>(*options.metrics, options.counted_services));
  }
  if (options.audit != nullptr) watchers.push_back(std::make_unique<AuditCalls>(*options.audit));
  builder.experimental().SetInterceptorCreators(std::move(watchers));
}

// gRPC says in its log what strangers do, and that a certificate is not that of the host's name,
// which means nothing here.
void LogForGrpc(gpr_log_func_args* line) {
  static std::atomic<std::int64_t> told_at = 0;  // In seconds.
  if (std::string_view(line->message).starts_with("No match found for server name")) return;
  const std::int64_t now = absl::ToUnixSeconds(absl::Now());
  if (told_at.exchange(now, std::memory_order_relaxed) == now) return;
  LogWarning("grpc", line->message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, std::span<grpc::Service* const> services) {
  EMBLA_ASSIGN_OR_RETURN(
      const ListenAddress listen,
      CheckListenAddress(options.listen, options.insecure || options.tls != nullptr));
  gpr_set_log_function(&LogForGrpc);
  EMBLA_ASSIGN_OR_RETURN(ListeningSockets listening, options.listening == nullptr
                                                         ? Listen(listen)
                                                         : Duplicate(*options.listening));
  const std::string address = listen.WithPort(listening.port);
  wire::KeepCallbackQueue();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<ReflectionIf>(options.has_reflection));
  SetArguments(builder, options);
  for (grpc::Service* const service : services) builder.RegisterService(service);
  std::unique_ptr<RpcServer> server(new RpcServer(address, options));
  builder.RegisterCallbackGenericService(&server->unknown_calls_);
  Watch(builder, options);
  if (options.tls != nullptr) {
    const std::shared_ptr<AccessGuard>& guard = server->guard_;
    const std::shared_ptr<grpc::ServerCredentials> credentials = options.tls->ForServer(
        [guard](TlsRefusal refusal, const absl::Status& why) {
          guard->OnHandshakeRefused(refusal, why);
        },
        guard);
    using From = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    server->tls_connections_ =
        builder.experimental().AddExternalConnectionAcceptor(From::FROM_FD, credentials);
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC does not start a server");
  for (const std::string& name : options.health_services) {
    server->server_->GetHealthCheckService()->SetServingStatus(name, options.is_serving);
  }
  server->SetServing(options.is_serving);
  server->listening_ = std::move(listening);
  if (options.accepts) EMBLA_RETURN_IF_ERROR(server->BeginAccepting());
  return server;
}

absl::Status RpcServer::BeginAccepting() {
  if (acceptor_ != nullptr) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(acceptor_,
                         ConnectionAcceptor::Start(
                             std::move(listening_), limits_, metrics_,
                             [this](int number) { return TakeConnection(number); }, take_frames_));
  return absl::OkStatus();
}

RpcServer::RpcServer(std::string address, const RpcServerOptions& options)
    : limits_(options.connections),
      metrics_(options.metrics),
      take_frames_(options.take_frames),
      shares_(options.shares, options.metrics),
      unknown_calls_(options.port, options.answer_unknown),
      guard_(std::make_shared<AccessGuard>(options.tls, options.metrics)),
      address_(std::move(address)) {}

std::string RpcServer::TakeConnection(int number) {
  if (tls_connections_ == nullptr) {
    shares_.Open(number);
    grpc::AddInsecureChannelFromFd(server_.get(), number);
    return absl::StrCat("fd:", number);
  }
  // Encrypted bytes cannot be counted; but nobody comes as far as to messages who has no
  // certificate, and to handlers who has no token.
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = number;
  std::string name = PeerNameOf(number);
  tls_connections_->HandleNewConnection(&connection);
  return name;
}

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
