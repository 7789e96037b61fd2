#include "server/rpc/node_link_call.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/wire/status_codec.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/move_codec.h"

namespace embla {

NodeLinkCall::NodeLinkCall(CoordinatorHost& host, std::string peer)
    : host_(host), peer_(std::move(peer)) {
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
  Handle(std::move(received_));
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
  answer.set_dead_after_ms(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(options.dead_after)));
  MutexLock lock(mu_);
  greeting_ = std::move(command);
  WriteMore();
  return absl::OkStatus();
}

absl::Status NodeLinkCall::CheckKey(const v1::Registration& registration) const {
  const ClusterKey& key = *host_.coordinator_options().key;
  if (IsNode(key, nonces_, registration.incarnation(), registration.name(),
             registration.key_proof())) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("node ", absl::CHexEscape(registration.name().substr(0, 128)),
                   " does not have this cluster's key: give it --cluster-key FILE"));
}

void NodeLinkCall::Handle(v1::NodeReport report) {
  if (report.has_greeting()) return Handled(Greet(report.greeting()));
  if (report.has_registration()) {
    const absl::Status proved = CheckKey(report.registration());
    if (!proved.ok()) return Handled(proved);
  }
  const absl::Status posted =
      host_.Post([this, report = std::move(report)](Coordinator& coordinator, absl::Time now) {
        absl::Status status =
            absl::InvalidArgumentError("neither registration nor heartbeat nor moves are set");
        if (report.has_registration()) status = Register(coordinator, report.registration(), now);
        if (report.has_heartbeat()) status = Beat(coordinator, report.heartbeat(), now);
        if (report.has_moves()) status = HearMoves(coordinator, report.moves(), now);
        Handled(status);
      });
  if (!posted.ok()) Handled(posted);
}

absl::Status NodeLinkCall::Register(Coordinator& coordinator, const v1::Registration& message,
                                    absl::Time now) {
  if (incarnation_ != 0) return absl::InvalidArgumentError("this link is registered already");
  EMBLA_ASSIGN_OR_RETURN(const NodeRegistration registration, FromMessage(message));
  EMBLA_ASSIGN_OR_RETURN(node_, coordinator.RegisterNode(registration, now));
  incarnation_ = registration.incarnation;
  auto command = std::make_unique<v1::NodeCommand>();
  command->mutable_registered()->set_node_id(ToInt(node_));
  command->mutable_registered()->set_cluster_id(coordinator.GetPlan()->cluster_id());
  command->mutable_registered()->set_heartbeat_ms(static_cast<std::uint32_t>(
      absl::ToInt64Milliseconds(coordinator.options().heartbeat_interval)));
  command->mutable_registered()->set_generation(coordinator.Status().generation);
  command->mutable_registered()->set_store_revision(ToInt(coordinator.store_revision()));
  {
    MutexLock lock(mu_);
    registered_ = std::move(command);
    welcomed_ = true;
    sessions_ = coordinator.all_sessions();
    plan_ = coordinator.GetPlan();
    WriteMore();
  }
  host_.AddListener(this);
  return absl::OkStatus();
}

absl::Status NodeLinkCall::Beat(Coordinator& coordinator, const v1::Heartbeat& message,
                                absl::Time now) {
  if (incarnation_ == 0) return absl::FailedPreconditionError("register first");
  host_.CountHeartbeat(node_);
  return coordinator.Heartbeat(node_, incarnation_, FromMessage(message), now);
}

absl::Status NodeLinkCall::HearMoves(Coordinator& coordinator, const v1::MoveReports& message,
                                     absl::Time now) {
  if (incarnation_ == 0) return absl::FailedPreconditionError("register first");
  EMBLA_ASSIGN_OR_RETURN(const std::vector<UnitReport> reports, FromMessage(message));
  coordinator.OnMoveReports(node_, reports, now);
  return absl::OkStatus();
}

void NodeLinkCall::Handled(const absl::Status& status) {
  MutexLock lock(mu_);
  handling_ = false;
  if (!status.ok()) {
    LogWarning("coordinator", "link refused peer=", peer_, " reason=", Message(status));
    ended_ = true;
    result_ = wire::ToGrpc(status);
  }
  if (!ended_) StartRead(&received_);
  FinishIfIdle();
}

void NodeLinkCall::OnPlan(const PlanPtr& plan) {
  MutexLock lock(mu_);
  plan_ = plan;
  WriteMore();
}

void NodeLinkCall::OnOrders(NodeId node, const std::vector<UnitOrder>& orders) {
  if (node != node_) return;
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

// Nothing of this call runs any more, except OnPlan until the listener is removed.
void NodeLinkCall::OnDone() {
  host_.RemoveListener(this);
  if (incarnation_ != 0) {
    (void)host_.Post(
        [node = node_, incarnation = incarnation_](Coordinator& coordinator, absl::Time now) {
          coordinator.NodeDisconnected(node, incarnation, now);
        });
  }
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
    *command_.mutable_install_plan() = *host_.MessageOf(*plan_);
    written_ = plan_->version();
    plan_.reset();
  } else if (!orders_.empty()) {
    const std::size_t count = std::min(orders_.size(), kOrdersPerCommand);
    command_.Clear();
    *command_.mutable_moves() = ToMessage(std::span(orders_).first(count));
    orders_.erase(orders_.begin(), orders_.begin() + static_cast<std::ptrdiff_t>(count));
  } else {
    return;
  }
  writing_ = true;
  StartWrite(&command_);
}

void NodeLinkCall::FinishIfIdle() {
  if (!ended_ || finished_ || writing_ || handling_) return;
  finished_ = true;
  Finish(result_);
}

}  // namespace embla
