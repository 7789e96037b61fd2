#include "server/rpc/node_link_call.h"

#include <algorithm>
#include <span>
#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/tls/tls.h"
#include "core/wire/message_scan.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/move_codec.h"

namespace embla {
namespace {

// Limits on messages of peers that have not proved that they are nodes.
constexpr wire::ScanLimits kStrangersReport{};
// A registration says what the node has, of many thousands of tables. No field has less than 2
// bytes.
constexpr wire::ScanLimits kNodesReport{.bytes_max = std::size_t{64} << 20,
                                        .fields_max = std::size_t{32} << 20};

}  // namespace

NodeLinkCall::NodeLinkCall(CoordinatorHost& host, const grpc::CallbackServerContext& call)
    : host_(host), peer_(call.peer()), caller_(CallerOf(call)), connection_(ConnectionOf(call)) {
  StartRead(&received_);
}

void NodeLinkCall::OnReadDone(bool ok) {
  {
    MutexLock lock(mu_);
    if (!ok) ended_ = true;
    if (ended_) {
      FinishIfIdle();
      return;
    }
    handling_ = true;
  }
  absl::StatusOr<v1::NodeReport> report = DecodeReceived();
  if (!report.ok()) return Handled(report.status());
  Handle(*std::move(report));
}

absl::StatusOr<v1::NodeReport> NodeLinkCall::DecodeReceived() {
  const wire::ScanLimits& limits = proved_.has_value() ? kNodesReport : kStrangersReport;
  grpc::ByteBuffer bytes;
  bytes.Swap(&received_);
  if (bytes.Length() > limits.bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("report of ", bytes.Length(), " bytes, at most ", limits.bytes_max,
                     proved_.has_value() ? "" : " before the node's proof"));
  }
  grpc::Slice whole;
  v1::NodeReport report;
  if (bytes.Length() == 0) return report;
  if (!bytes.DumpToSingleSlice(&whole).ok()) return absl::InvalidArgumentError("no report");
  EMBLA_RETURN_IF_ERROR(
      wire::ScanMessage({reinterpret_cast<const char*>(whole.begin()), whole.size()},
                        *v1::NodeReport::descriptor(), limits));
  if (!report.ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return absl::InvalidArgumentError("malformed message: not a report");
  }
  return report;
}

absl::Status NodeLinkCall::Greet(const v1::NodeGreeting& greeting) {
  if (!nonces_.node.empty()) return absl::InvalidArgumentError("this link was greeted already");
  if (greeting.nonce().size() != ClusterKey::kNonceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the greeting's nonce has ",
                                                   greeting.nonce().size(), " bytes, it must have ",
                                                   ClusterKey::kNonceBytes));
  }
  nonces_ = {.node = greeting.nonce(), .coordinator = RandomNonce()};
  const CoordinatorOptions& options = host_.coordinator_options();
  auto command = std::make_unique<v1::NodeCommand>();
  v1::CoordinatorGreeting& answer = *command->mutable_greeting();
  answer.set_nonce(nonces_.coordinator);
  answer.set_proof(ProveCoordinator(*options.key, nonces_));
  answer.set_key_path(options.key_path);
  if (caller_.has_value()) answer.set_key(options.key->Format());
  answer.set_dead_after_ms(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(options.dead_after)));
  MutexLock lock(mu_);
  greeting_ = std::move(command);
  WriteMore();
  return absl::OkStatus();
}

absl::Status NodeLinkCall::HearProof(const v1::NodeProof& proof) {
  const ClusterKey& key = *host_.coordinator_options().key;
  if (!IsNode(key, nonces_, proof.boot_id(), proof.name(), proof.key_proof())) {
    return absl::PermissionDeniedError(
        absl::StrCat("node ", absl::CHexEscape(proof.name().substr(0, 128)),
                     " does not have this cluster's key: give it --cluster-key FILE"));
  }
  EMBLA_RETURN_IF_ERROR(CheckName(caller_, "node", proof.name()));
  proved_ = proof;
  ShowPeer(connection_);
  return absl::OkStatus();
}

absl::Status NodeLinkCall::CheckProved(const v1::Registration& registration) const {
  if (proved_.has_value() && proved_->name() == registration.name() &&
      proved_->boot_id() == registration.boot_id()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("registration of node ", absl::CHexEscape(registration.name().substr(0, 128)),
                   " without a proof of this name and boot_id: send `proof` before it"));
}

void NodeLinkCall::HandOverHeartbeat(const v1::Heartbeat& heartbeat) {
  if (process_.boot_id == 0) return Handled(absl::FailedPreconditionError("register first"));
  HeartbeatInfo info = FromMessage(heartbeat);
  if (heartbeat.unix_ms() != 0) {
    info.clock_ahead = absl::FromUnixMillis(heartbeat.unix_ms()) - absl::Now();
  }
  host_.PostHeartbeat(process_, info);
  Handled(absl::OkStatus());
}

void NodeLinkCall::Handle(v1::NodeReport report) {
  if (report.has_greeting()) return Handled(Greet(report.greeting()));
  if (report.has_heartbeat()) return HandOverHeartbeat(report.heartbeat());
  if (report.has_proof()) return Handled(HearProof(report.proof()));
  if (report.has_registration()) {
    const absl::Status proved = CheckProved(report.registration());
    if (!proved.ok()) return Handled(proved);
  }
  host_.PostOfNode(
      [this, report = std::move(report)](Coordinator& coordinator, absl::Time now) {
        executed_ = Execute(coordinator, report, now);
      },
      [this](const absl::Status& durable) { Handled(durable.ok() ? executed_ : durable); });
}

absl::Status NodeLinkCall::Execute(Coordinator& coordinator, const v1::NodeReport& report,
                                   absl::Time now) {
  if (report.has_registration()) return Register(coordinator, report.registration(), now);
  if (report.has_moves()) return HearMoves(coordinator, report.moves(), now);
  return absl::InvalidArgumentError("neither registration nor heartbeat nor moves are set");
}

absl::Status NodeLinkCall::Register(Coordinator& coordinator, const v1::Registration& message,
                                    absl::Time now) {
  if (process_.boot_id != 0) {
    return absl::InvalidArgumentError("this link is registered already");
  }
  EMBLA_ASSIGN_OR_RETURN(const NodeRegistration registration, FromMessage(message));
  EMBLA_ASSIGN_OR_RETURN(process_.node, coordinator.RegisterNode(registration, now));
  process_.boot_id = registration.boot_id;
  welcome_ = std::make_unique<Welcome>();
  welcome_->registered = std::make_unique<v1::NodeCommand>();
  v1::Registered& registered = *welcome_->registered->mutable_registered();
  registered.set_node_id(ToInt(process_.node));
  registered.set_cluster_id(coordinator.GetPlan()->cluster_id());
  registered.set_heartbeat_ms(static_cast<std::uint32_t>(
      absl::ToInt64Milliseconds(coordinator.options().heartbeat_interval)));
  registered.set_generation(coordinator.Status().generation);
  registered.set_store_revision(ToInt(coordinator.store_revision()));
  welcome_->sessions = coordinator.all_sessions();
  welcome_->plan = coordinator.GetPlan();
  return absl::OkStatus();
}

absl::Status NodeLinkCall::HearMoves(Coordinator& coordinator, const v1::MoveReports& message,
                                     absl::Time now) {
  if (process_.boot_id == 0) return absl::FailedPreconditionError("register first");
  EMBLA_ASSIGN_OR_RETURN(const std::vector<UnitReport> reports, FromMessage(message));
  coordinator.OnMoveReports(process_.node, reports, now);
  return absl::OkStatus();
}

// A newer plan than the welcome's comes to listeners, of which this is one before it is published.
void NodeLinkCall::Handled(const absl::Status& status) {
  const std::unique_ptr<Welcome> welcome = std::move(welcome_);
  if (status.ok() && welcome != nullptr) {
    {
      MutexLock lock(mu_);
      registered_ = std::move(welcome->registered);
      welcomed_ = true;
      sessions_ = welcome->sessions;
      plan_ = welcome->plan;
      WriteMore();
    }
    host_.AddListener(this);
  }
  MutexLock lock(mu_);
  handling_ = false;
  if (!status.ok()) End(status);
  if (!ended_) StartRead(&received_);
  FinishIfIdle();
}

void NodeLinkCall::End(const absl::Status& status) {
  LogWarning("coordinator", "link refused peer=", peer_, " reason=", Message(status));
  ended_ = true;
  result_ = wire::ToGrpc(status);
}

void NodeLinkCall::OnRefusedHeartbeat(const NodeProcess& process, const absl::Status& status) {
  if (process != process_) return;
  MutexLock lock(mu_);
  if (ended_) return;
  End(status);
  FinishIfIdle();
}

void NodeLinkCall::OnPlan(const PlanPtr& plan) {
  MutexLock lock(mu_);
  if (plan_ == nullptr || plan->version() > plan_->version()) plan_ = plan;
  WriteMore();
}

void NodeLinkCall::OnOrders(NodeId node, const std::vector<UnitOrder>& orders) {
  if (node != process_.node) return;
  MutexLock lock(mu_);
  const std::size_t room = kOrdersMax - std::min(orders_.size(), kOrdersMax);
  const auto end = orders.begin() + static_cast<std::ptrdiff_t>(std::min(room, orders.size()));
  orders_.insert(orders_.end(), orders.begin(), end);
  WriteMore();
}

void NodeLinkCall::OnSessions(const SessionNews& news) {
  MutexLock lock(mu_);
  if (!sessions_.has_value()) sessions_.emplace();
  sessions_->number = news.number;
  sessions_->closed.Include(news.closed);
  WriteMore();
}

void NodeLinkCall::OnTestimony(NodeId node, const std::string& testimony) {
  if (node != process_.node) return;
  MutexLock lock(mu_);
  testimony_ = testimony;
  WriteMore();
}

void NodeLinkCall::OnServe(NodeId node) {
  if (node != process_.node) return;
  MutexLock lock(mu_);
  lets_serve_ = true;
  WriteMore();
}

void NodeLinkCall::OnLogLevel(NodeId node, LogLevel level) {
  if (node != process_.node) return;
  MutexLock lock(mu_);
  log_level_ = level;
  WriteMore();
}

void NodeLinkCall::OnStop() {
  MutexLock lock(mu_);
  if (ended_) return;
  ended_ = true;
  result_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator is stopping");
  FinishIfIdle();
}

void NodeLinkCall::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (!ok) ended_ = true;
  WriteMore();
  FinishIfIdle();
}

void NodeLinkCall::OnCancel() {
  MutexLock lock(mu_);
  ended_ = true;
  FinishIfIdle();
}

// After this no callback of the call runs, except OnPlan until the listener is removed.
void NodeLinkCall::OnDone() {
  host_.RemoveListener(this);
  if (process_.boot_id != 0) {
    host_.PostOfNode(
        [process = process_](Coordinator& coordinator, absl::Time now) {
          coordinator.NodeDisconnected(process.node, process.boot_id, now);
        },
        [](const absl::Status&) {});  // A coordinator that stops judges nobody.
  }
  { MutexLock lock(mu_); }  // A thread in Finish may still hold the mutex.
  delete this;
}

void NodeLinkCall::WriteMore() {
  if (writing_ || ended_ || finished_) return;
  const bool is_first_plan = written_ == PlanVersion{};
  if (greeting_ != nullptr) {
    command_ = *std::move(greeting_);
    greeting_.reset();
  } else if (!welcomed_) {
    return;
  } else if (registered_ != nullptr) {
    command_ = *std::move(registered_);
    registered_.reset();
  } else if (sessions_.has_value()) {
    command_.Clear();
    *command_.mutable_sessions() = ToMessage(*sessions_);
    sessions_.reset();
  } else if (plan_ != nullptr && plan_->version() > written_ &&
             (is_first_plan || orders_.empty())) {
    command_.Clear();
    *command_.mutable_install_plan() = *host_.MessageOf(plan_, written_);
    written_ = plan_->version();
    plan_.reset();
  } else if (!orders_.empty()) {
    const std::size_t count = std::min(orders_.size(), kOrdersPerCommand);
    command_.Clear();
    *command_.mutable_moves() = ToMessage(std::span(orders_).first(count));
    orders_.erase(orders_.begin(), orders_.begin() + static_cast<std::ptrdiff_t>(count));
  } else if (!testimony_.empty()) {
    command_.Clear();
    command_.set_testimony(std::exchange(testimony_, {}));
  } else if (lets_serve_) {
    command_.Clear();
    command_.set_serve(true);
    lets_serve_ = false;
  } else if (log_level_.has_value()) {
    command_.Clear();
    command_.set_log_level(ToMessage(*log_level_));
    log_level_.reset();
  } else {
    return;
  }
  writing_ = true;
  command_bytes_.Clear();
  bool owns_bytes = false;
  (void)grpc::SerializationTraits<v1::NodeCommand>::Serialize(command_, &command_bytes_,
                                                              &owns_bytes);
  StartWrite(&command_bytes_);
}

void NodeLinkCall::FinishIfIdle() {
  if (!ended_ || finished_ || writing_ || handling_) return;
  finished_ = true;
  Finish(result_);
}

}  // namespace embla
