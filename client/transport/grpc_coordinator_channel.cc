#include "client/transport/grpc_coordinator_channel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "client/transport/grpc_channel.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/plan_codec.h"
#include "core/wire/redirect.h"
#include "core/wire/status_codec.h"
#include "core/wire/waited_stream.h"
#include "embla/v1/coordinator.grpc.pb.h"

namespace embla::client {
namespace {

constexpr absl::Duration kWatchBackoffMin = absl::Milliseconds(100);
constexpr absl::Duration kWatchBackoffMax = absl::Seconds(2);

class GrpcCoordinatorChannel final : public CoordinatorChannel {
 public:
  GrpcCoordinatorChannel(const std::string& addresses, TlsPtr tls)
      : tls_(std::move(tls)), choice_(wire::SplitAddresses(addresses)) {}

  ~GrpcCoordinatorChannel() override { StopWatch(); }

  absl::StatusOr<PlanPtr> GetPlan(const PlanPtr& have, absl::Time deadline) override {
    v1::GetPlanRequest request;
    request.set_newer_than(ToInt(have->version()));
    request.set_source(SourceOf(have));
    v1::PlanDelta plan;
    const absl::Status status = Call(deadline, [&](Stub& stub, grpc::ClientContext& context) {
      return stub.GetPlan(&context, request, &plan);
    });
    if (!status.ok()) return status;
    if (have->version() == PlanVersion{}) EMBLA_RETURN_IF_ERROR(CheckClusters());
    if (plan.version() <= ToInt(have->version())) return PlanPtr();
    return Read(plan, *have);
  }

  absl::StatusOr<SessionGrant> OpenSession(const SessionRequest& wanted,
                                           absl::Time deadline) override {
    v1::OpenSessionRequest request;
    request.set_client_name(wanted.client_name);
    request.set_trainer(wanted.trainer);
    request.set_client_nonce(wanted.client_nonce);
    request.set_replaces(ToInt(wanted.replaces));
    if (wanted.rank.has_value()) request.set_rank(ToInt(*wanted.rank));
    request.set_ranks(wanted.ranks);
    v1::OpenSessionReply reply;
    const absl::Status status = Call(deadline, [&](Stub& stub, grpc::ClientContext& context) {
      return stub.OpenSession(&context, request, &reply);
    });
    if (!status.ok()) return status;
    SessionGrant grant{SessionId{reply.session()}, SessionId{reply.latest()}, reply.turn(), {}};
    const std::string& proof = reply.proof();
    if (proof.size() == grant.proof.size()) {
      std::copy(proof.begin(), proof.end(), grant.proof.begin());
    }
    return grant;
  }

  absl::Status CloseSession(SessionId session, const SessionProof& proof,
                            absl::Time deadline) override {
    v1::CloseSessionRequest request;
    request.set_session(ToInt(session));
    request.set_session_proof(proof.data(), proof.size());
    v1::CloseSessionReply reply;
    return Call(deadline, [&](Stub& stub, grpc::ClientContext& context) {
      return stub.CloseSession(&context, request, &reply);
    });
  }

  absl::Status JoinSteps(SessionId session, const SessionProof& proof,
                         std::span<const TableId> tables, absl::Time deadline) override {
    v1::JoinStepsRequest request;
    request.set_session(ToInt(session));
    request.set_session_proof(proof.data(), proof.size());
    for (const TableId table : tables) request.add_table_ids(ToInt(table));
    v1::JoinStepsReply reply;
    return Call(deadline, [&](Stub& stub, grpc::ClientContext& context) {
      return stub.JoinSteps(&context, request, &reply);
    });
  }

  void StartWatch(PlanPtr have, const SessionGrant& session,
                  std::function<void(PlanPtr)> on_plan) override {
    have_ = std::move(have);
    session_ = session;
    on_plan_ = std::move(on_plan);
    watcher_ = std::thread([this] { Watch(); });
  }

  void StopWatch() override {
    {
      MutexLock lock(mu_);
      stopping_ = true;
      if (watching_ != nullptr) watching_->TryCancel();
      changed_.NotifyAll();
    }
    if (watcher_.joinable()) watcher_.join();
  }

 private:
  using Stub = v1::CoordinatorService::Stub;

  // Made once for each coordinator.
  Stub& StubOf(const std::string& address) {
    MutexLock lock(mu_);
    std::unique_ptr<Stub>& stub = stubs_[address];
    if (stub == nullptr) {
      const ExpectedPeer peer{.role = Role::kCoordinator};
      stub = v1::CoordinatorService::NewStub(choice_.has_several()
                                                 ? MakeMemberChannel(address, tls_, peer)
                                                 : MakeChannel(address, tls_, peer));
    }
    return *stub;
  }

  // Whether another coordinator is to be asked.
  bool Leave(const std::string& address, const grpc::Status& answer) {
    const std::optional<wire::Redirect> redirect = wire::RedirectOf(answer);
    const bool is_away = answer.error_code() == grpc::StatusCode::UNAVAILABLE ||
                         answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const bool is_named = redirect.has_value() && !redirect->coordinator.empty();
    const bool has_others = choice_.has_several() || address != choice_.addresses().front();
    if (!is_away || (!is_named && !has_others)) return false;
    choice_.Leave(address, is_named ? redirect->coordinator : "");
    return true;
  }

  // InvalidArgument: the list has coordinators of two clusters. Those that do not answer are not
  // waited for.
  absl::Status CheckClusters() {
    if (!choice_.has_several()) return absl::OkStatus();
    std::map<std::string, std::string> clusters;
    for (const std::string& address : choice_.addresses()) {
      clusters[address] = wire::AskCluster(StubOf(address));
    }
    return wire::CheckOneCluster(clusters, "the list of coordinators");
  }

  absl::StatusOr<PlanPtr> Read(const v1::PlanDelta& message, const Plan& have) {
    absl::StatusOr<PlanPtr> plan = wire::ApplyMessage(message, have);
    if (!plan.ok()) return plan;
    if (!have.cluster_id().empty() && (*plan)->cluster_id() != have.cluster_id()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a plan of cluster ", (*plan)->cluster_id(), " came, this client is of cluster ",
          have.cluster_id(), ": the list of coordinators has those of two clusters"));
    }
    MutexLock lock(mu_);
    if (newest_.plan == nullptr || newest_.plan->version() < (*plan)->version()) {
      newest_ = {*plan, message.source()};
    }
    return plan;
  }

  // 0: not known any more.
  std::uint64_t SourceOf(const PlanPtr& plan) {
    MutexLock lock(mu_);
    return newest_.plan == plan ? newest_.source : 0;
  }

  template <typename Rpc>
  absl::Status Call(absl::Time deadline, const Rpc& rpc) {
    absl::Status status;
    // Each is asked once, and the one that the last of them names.
    for (std::size_t tries = choice_.addresses().size() + 1; tries > 0; --tries) {
      const std::string address = choice_.current();
      grpc::ClientContext context;
      context.set_deadline(DeadlineOf(deadline));
      const grpc::Status answer = AnswerOf(rpc(StubOf(address), context));
      status = Annotate(wire::FromGrpc(answer), DescribeServer("coordinator", address, tls_));
      if (status.ok() || !Leave(address, answer) || Clock::Real().Now() >= deadline) break;
    }
    return status;
  }

  void Watch() {
    std::minstd_rand random(static_cast<unsigned>(RandomId64()));
    absl::Duration backoff = kWatchBackoffMin;
    bool was_up = true;
    while (true) {
      absl::Status status;
      if (WatchOnce(status)) {
        backoff = kWatchBackoffMin;
        was_up = true;
      }
      MutexLock lock(mu_);
      if (stopping_) return;
      if (was_up) {
        LogWarning("client",
                   "the watch of the plan ended; trying again coordinator=", choice_.current(),
                   " status=", status.ToString());
        was_up = false;
      }
      const double jitter = std::uniform_real_distribution<double>(0.5, 1.0)(random);
      const absl::Time until = Clock::Real().Now() + backoff * jitter;
      while (!stopping_ && Clock::Real().Now() < until)
        changed_.WaitFor(mu_, until - Clock::Real().Now());
      if (stopping_) return;
      backoff = std::min(backoff * 2, kWatchBackoffMax);
    }
  }

  // One stream, until it ends. Returns whether anything came.
  bool WatchOnce(absl::Status& status) {
    grpc::ClientContext context;
    {
      MutexLock lock(mu_);
      if (stopping_) return false;
      watching_ = &context;
    }
    v1::GetPlanRequest request;
    request.set_newer_than(ToInt(have_->version()));
    request.set_source(SourceOf(have_));
    request.set_session(ToInt(session_.session));
    request.set_session_proof(session_.proof.data(), session_.proof.size());
    const std::string address = choice_.current();
    wire::WaitedReader<v1::PlanDelta> reader;
    StubOf(address).async()->WatchPlan(&context, &request, &reader);
    reader.Begin();
    bool any = false;
    v1::PlanDelta message;
    while (reader.Read(&message)) {
      any = true;
      absl::StatusOr<PlanPtr> plan = Read(message, *have_);
      if (!plan.ok()) {
        LogError("client", "a plan cannot be read version=", message.version(),
                 " status=", plan.status().ToString());
        context.TryCancel();  // No later plan can be reached from an unreadable one.
        continue;
      }
      have_ = *plan;
      on_plan_(*std::move(plan));
    }
    {
      MutexLock lock(mu_);
      watching_ = nullptr;
    }
    const grpc::Status answer = reader.Finish();
    status = wire::FromGrpc(answer);
    const bool is_left = Leave(address, answer);
    // A plan of another cluster, or one that cannot be read.
    if (!is_left && choice_.has_several()) choice_.Leave(address, "");
    return any;
  }

  const TlsPtr tls_;
  wire::CoordinatorChoice choice_;

  // The watcher's latest plan; only its thread uses it once it runs.
  PlanPtr have_;
  SessionGrant session_;
  std::function<void(PlanPtr)> on_plan_;

  Mutex mu_;
  CondVar changed_;
  // The newest plan that came, and the coordinator's process that sent it.
  struct {
    PlanPtr plan;
    std::uint64_t source = 0;
  } newest_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* watching_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<CoordinatorChannel> MakeGrpcCoordinatorChannel(const std::string& addresses,
                                                               const TlsPtr& tls) {
  return std::make_unique<GrpcCoordinatorChannel>(addresses, tls);
}

}  // namespace embla::client
