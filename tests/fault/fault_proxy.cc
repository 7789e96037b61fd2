#include "tests/fault/fault_proxy.h"

#include <chrono>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "client/transport/grpc_channel.h"
#include "core/base/testing/loopback.h"
#include "core/wire/callback_queue.h"
#include "tests/fault/proxied_call.h"

namespace embla::fault {
namespace {

constexpr absl::Duration kReplayTimeout = absl::Seconds(5);

// A request sent on behalf of nobody. Owns itself.
struct ReplayedCall final : public grpc::ClientUnaryReactor {
  void OnDone(const grpc::Status&) override { delete this; }

  std::shared_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer reply;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(std::uint64_t seed, Witness witness) {
  wire::KeepCallbackQueue();
  std::unique_ptr<FaultProxy> proxy(new FaultProxy(seed, std::move(witness)));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(testing::AnyLoopbackPort(), grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterCallbackGenericService(proxy.get());
  proxy->server_ = builder.BuildAndStart();
  if (proxy->server_ == nullptr || port == 0) {
    return absl::UnavailableError("a proxy cannot listen on loopback");
  }
  proxy->address_ = absl::StrCat(testing::LoopbackHost(), ":", port);
  return proxy;
}

FaultProxy::~FaultProxy() {
  Heal();
  BreakCalls();
  server_->Shutdown(std::chrono::system_clock::now());
  const MutexLock lock(mu_);
  while (!calls_.empty()) all_over_.Wait(mu_);
}

void FaultProxy::SetUpstream(const std::string& address) {
  auto stub = std::make_shared<grpc::GenericStub>(client::MakeChannel(address));
  const MutexLock lock(mu_);
  upstream_ = std::move(stub);
}

std::shared_ptr<grpc::GenericStub> FaultProxy::upstream() const {
  const MutexLock lock(mu_);
  return upstream_;
}

void FaultProxy::SetFaults(const LinkFaults& faults) {
  std::vector<std::function<void()>> held;
  {
    const MutexLock lock(mu_);
    faults_ = faults;
    held.swap(held_);  // Calls that are still cut off are held again.
  }
  for (const auto& again : held) again();
}

bool FaultProxy::IsCut(Way way, const std::string& method) const {
  const MutexLock lock(mu_);
  return IsCutLocked(way, method);
}

void FaultProxy::OnceHealed(Way way, const std::string& method, std::function<void()> again) {
  const MutexLock lock(mu_);
  if (IsCutLocked(way, method)) return held_.push_back(std::move(again));
  timer_.At(timer_.Now(), std::move(again));
}

Fate FaultProxy::DrawFate(const std::string& method) {
  const MutexLock lock(mu_);
  if (!Concerns(method)) return {};
  std::uniform_real_distribution<double> any(0, 1);
  Fate fate;
  fate.drop_request = any(random_) < faults_.drop_request;
  fate.drop_reply = any(random_) < faults_.drop_reply;
  fate.duplicate = any(random_) < faults_.duplicate;
  if (any(random_) < faults_.delay) fate.delay = faults_.delay_max * any(random_);
  return fate;
}

std::vector<std::shared_ptr<ProxiedCall>> FaultProxy::Calls() const {
  std::vector<std::shared_ptr<ProxiedCall>> calls;
  const MutexLock lock(mu_);
  for (const auto& [id, call] : calls_) {
    if (auto alive = call.lock()) calls.push_back(std::move(alive));
  }
  return calls;
}

void FaultProxy::BreakCalls() {
  for (const auto& call : Calls()) call->Break();
}

std::string FaultProxy::Describe() const {
  std::string text;
  for (const auto& call : Calls()) absl::StrAppend(&text, "  ", call->Describe(), "\n");
  return text;
}

void FaultProxy::Replay(const std::string& method, const grpc::ByteBuffer& request) {
  auto* const call = new ReplayedCall;
  call->stub = upstream();
  if (call->stub == nullptr) return delete call;
  call->request = request;
  call->context.set_deadline(client::DeadlineOf(timer_.Now() + kReplayTimeout));
  call->stub->PrepareUnaryCall(&call->context, method, grpc::StubOptions(), &call->request,
                               &call->reply, call);
  call->StartCall();
}

grpc::ServerGenericBidiReactor* FaultProxy::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  std::shared_ptr<ProxiedCall> call;
  {
    const MutexLock lock(mu_);
    const std::uint64_t id = ++last_call_;
    call = std::make_shared<ProxiedCall>(*this, id, context);
    calls_[id] = call;
  }
  return call->Begin();
}

void FaultProxy::Forget(std::uint64_t call) {
  const MutexLock lock(mu_);
  calls_.erase(call);
  if (calls_.empty()) all_over_.NotifyAll();
}

}  // namespace embla::fault
