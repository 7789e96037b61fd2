#include "server/rpc/coordinator_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/log_level.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/plan_codec.h"
#include "core/wire/status_codec.h"
#include "server/rpc/channel_arguments.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/move_codec.h"
#include "server/shard/session_gate.h"

namespace embla {
namespace {

// On top of the time in which a process that died may still count as alive.
constexpr absl::Duration kNameWait = absl::Seconds(10);
// While none of several coordinators leads, which lasts for seconds.
constexpr absl::Duration kMemberBackoffMax = absl::Milliseconds(300);

}  // namespace

CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options, ShardNode& node)
    : options_(std::move(options)),
      node_(node),
      choice_(wire::SplitAddresses(options_.coordinator)),
      jitter_(options_.jitter_seed),
      backoff_(options_.backoff_min),
      install_backoff_(options_.backoff_min) {
  if (options_.reports != nullptr) {
    options_.reports->SetWake([this] {
      // With the lock, so that a thread about to wait hears of it.
      MutexLock lock(mu_);
      changed_.NotifyAll();
    });
  }
  install_thread_ = std::thread([this] { Install(); });
  link_thread_ = std::thread([this] { Run(); });
}

CoordinatorLink::~CoordinatorLink() {
  if (options_.reports != nullptr) options_.reports->SetWake({});
  {
    MutexLock lock(mu_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  changed_.NotifyAll();
  link_thread_.join();
  install_thread_.join();
}

bool CoordinatorLink::registered() const {
  MutexLock lock(mu_);
  return registered_;
}

absl::Status CoordinatorLink::refusal() const {
  MutexLock lock(mu_);
  return refusal_;
}

void CoordinatorLink::Run() {
  while (true) {
    const absl::Status status = RunOnce();
    bool is_final = false;
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      if (std::exchange(registered_, false)) {
        left_in_a_row_ = 0;
        backoff_ = options_.backoff_min;
        was_registered_ = true;
      }
      is_final = IsFinal(status);
      if (is_final) refusal_ = status;
    }
    if (is_final) {
      LogError("shard", "the coordinator cannot take this node address=", address_,
               " reason=", Message(status));
      if (options_.on_refused) options_.on_refused(status);
      return;
    }
    Backoff(status);
  }
}

bool CoordinatorLink::IsFinal(const absl::Status& status) {
  // Rows that are served now are worth more than an early end.
  if (was_registered_) return false;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    case absl::StatusCode::kAlreadyExists:
      name_taken_since_ = std::min(name_taken_since_, Clock::Real().Now());
      return Clock::Real().Now() - name_taken_since_ > dead_after_ + kNameWait;
    default:
      name_taken_since_ = absl::InfiniteFuture();
      return false;
  }
}

absl::Status CoordinatorLink::RunOnce() {
  address_ = choice_.current();
  if (!are_of_one_cluster_) {
    EMBLA_RETURN_IF_ERROR(CheckClusters());
    are_of_one_cluster_ = true;
  }
  grpc::ClientContext context;
  {
    MutexLock lock(mu_);
    if (stopping_) return absl::OkStatus();
    context_ = &context;
  }
  Stream stream;
  StubOf(address_).async()->NodeLink(&context, &stream);
  stream.Begin();
  const absl::Status introduced = Introduce(stream);
  // A stream that the other end has closed says why only if it is not cancelled.
  const bool was_closed = absl::IsAborted(introduced);
  if (introduced.ok()) {
    Carry(stream);
  } else if (!was_closed) {
    context.TryCancel();
  }
  const grpc::Status answer = stream.Finish();
  const absl::Status finished = wire::FromGrpc(answer);
  const std::optional<wire::Redirect> redirect = wire::RedirectOf(answer);
  if (choice_.has_several() || redirect.has_value()) {
    choice_.Leave(address_, redirect.has_value() ? redirect->coordinator : "");
  }
  {
    MutexLock lock(mu_);
    context_ = nullptr;
  }
  if (!introduced.ok() && !was_closed) return introduced;
  if (!absl::IsUnimplemented(finished)) return finished;
  return absl::UnimplementedError(
      absl::StrCat(address_,
                   " takes no links of shard servers: --coordinator wants the address of "
                   "the coordinator's --listen, not that of its --admin-listen"));
}

v1::CoordinatorService::Stub& CoordinatorLink::StubOf(const std::string& address) {
  std::unique_ptr<v1::CoordinatorService::Stub>& stub = stubs_[address];
  if (stub == nullptr) {
    stub = v1::CoordinatorService::NewStub(grpc::CreateCustomChannel(
        address, ChannelCredentialsTo(options_.tls, {.role = Role::kCoordinator}),
        choice_.has_several() ? MemberChannelArguments(options_.backoff_max)
                              : PeerChannelArguments(options_.backoff_max)));
  }
  return *stub;
}

absl::Status CoordinatorLink::CheckClusters() {
  if (!choice_.has_several()) return absl::OkStatus();
  std::map<std::string, std::string> clusters;
  for (const std::string& address : choice_.addresses()) {
    clusters[address] = wire::AskCluster(StubOf(address));
  }
  return wire::CheckOneCluster(clusters, "--coordinator");
}

absl::Status CoordinatorLink::Introduce(Stream& stream) {
  v1::NodeReport greeting;
  greeting.mutable_greeting()->set_nonce(RandomNonce());
  v1::NodeCommand command;
  if (!stream.Write(greeting) || !stream.Read(&command)) return absl::AbortedError("no greeting");
  if (!command.has_greeting()) {
    return absl::PermissionDeniedError(
        absl::StrCat(address_, " does not prove that it is a coordinator"));
  }
  const v1::CoordinatorGreeting& answer = command.greeting();
  if (answer.dead_after_ms() > 0) dead_after_ = absl::Milliseconds(answer.dead_after_ms());
  EMBLA_ASSIGN_OR_RETURN(const ClusterKeyPtr key, answer.key().empty()
                                                      ? options_.key->Load(answer.key_path())
                                                      : options_.key->Take(answer.key()));
  const LinkNonces nonces{.node = greeting.greeting().nonce(), .coordinator = answer.nonce()};
  if (!IsCoordinator(*key, nonces, answer.proof())) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the coordinator at ", address_, " has another cluster key than this node, which read ",
        options_.key->path(), ": give --cluster-key FILE"));
  }
  return Register(stream, nonces, *key);
}

absl::Status CoordinatorLink::Register(Stream& stream, const LinkNonces& nonces,
                                       const ClusterKey& key) {
  NodeRegistration described = options_.registration;
  if (options_.describe) options_.describe(described);
  // A coordinator whose store has gone back in time has forgotten some.
  described.sessions_refused = node_.sessions().closed().refused;
  v1::NodeReport proof;
  proof.mutable_proof()->set_name(described.name);
  proof.mutable_proof()->set_boot_id(described.boot_id);
  proof.mutable_proof()->set_key_proof(ProveNode(key, nonces, described.boot_id, described.name));
  v1::NodeReport report;
  v1::Registration& registration = *report.mutable_registration();
  registration = ToMessage(described);
  {
    MutexLock lock(mu_);
    if (!cluster_id_.empty()) registration.set_cluster_id(cluster_id_);
  }
  if (!stream.Write(proof) || !stream.Write(report)) return absl::AbortedError("no registration");
  return absl::OkStatus();
}

void CoordinatorLink::Carry(Stream& stream) {
  {
    MutexLock lock(mu_);
    linked_ = true;
  }
  std::thread reports([this, &stream] { SendReports(stream); });
  v1::NodeCommand command;
  while (stream.Read(&command)) Handle(command);
  {
    MutexLock lock(mu_);
    linked_ = false;
  }
  changed_.NotifyAll();
  reports.join();
}

void CoordinatorLink::Handle(const v1::NodeCommand& command) {
  if (command.has_registered()) {
    const v1::Registered& registered = command.registered();
    LogInfo("shard", "registered node_id=", registered.node_id(),
            " cluster=", registered.cluster_id(), " coordinator=", address_);
    last_error_.clear();
    CrashPoint("shard.registered");
    if (options_.on_registered) {
      const absl::Status written = options_.on_registered(registered);
      if (!written.ok()) {
        LogWarning("shard", "the registration is not written down reason=", Message(written));
      }
    }
    MutexLock lock(mu_);
    self_ = NodeId{registered.node_id()};
    cluster_id_ = registered.cluster_id();
    heartbeat_ = options_.heartbeat > absl::ZeroDuration()
                     ? options_.heartbeat
                     : absl::Milliseconds(std::max(registered.heartbeat_ms(), 1u));
    registered_ = true;
    report_now_ = true;
  } else if (command.has_install_plan()) {
    absl::StatusOr<PlanPtr> plan = wire::ApplyMessage(command.install_plan(), *received_);
    if (plan.ok()) received_ = *plan;
    // Without the plan before, no plan that comes on this link can be read; a new one begins with a
    // whole plan.
    const bool is_lost = absl::IsFailedPrecondition(plan.status());
    MutexLock lock(mu_);
    if (is_lost && context_ != nullptr) context_->TryCancel();
    heard_ = std::max(heard_, PlanVersion{command.install_plan().version()});
    if (plan.ok()) {
      if (wanted_ == nullptr || (*plan)->version() > wanted_->version()) {
        wanted_ = *plan;
        // The new plan may be possible where the last one was not: try at once.
        install_at_ = absl::InfinitePast();
      }
    } else {
      LogError("shard", "plan refused version=", command.install_plan().version(),
               " reason=", Message(plan.status()));
      failed_ = PlanVersion{command.install_plan().version()};
      failure_ = plan.status();
    }
    report_now_ = true;
  } else if (command.has_sessions()) {
    HandleSessions(command.sessions());
  } else if (command.has_moves()) {
    HandleOrders(command.moves());
  } else if (const auto level = FromMessage(command.log_level()); level.has_value()) {
    ChangeLogLevel("shard", *level);
    MutexLock lock(mu_);
    report_now_ = true;
  } else if (command.serve() && options_.on_serve) {
    options_.on_serve();
  } else if (!command.testimony().empty() && options_.on_testimony) {
    const absl::Status written = options_.on_testimony(command.testimony());
    if (!written.ok()) {
      LogWarning("shard",
                 "what is known of other nodes is not written down reason=", Message(written));
    }
  }
  changed_.NotifyAll();
}

void CoordinatorLink::HandleSessions(const v1::ClosedSessions& sessions) {
  absl::StatusOr<SessionNews> news = FromMessage(sessions);
  if (!news.ok()) {
    LogError("shard", "closed sessions ignored reason=", Message(news.status()));
    return;
  }
  MutexLock lock(mu_);
  if (!closed_.has_value()) {
    closed_ = *std::move(news);
    return;
  }
  closed_->number = news->number;
  closed_->closed.Include(news->closed);
}

void CoordinatorLink::HandleOrders(const v1::MoveOrders& orders) {
  if (!options_.on_orders) return;
  absl::StatusOr<std::vector<UnitOrder>> decoded = FromMessage(orders);
  if (!decoded.ok()) {
    LogError("shard", "orders of moves ignored reason=", Message(decoded.status()));
    return;
  }
  NodeId self{};
  {
    MutexLock lock(mu_);
    if (!has_sessions_) return;  // The coordinator repeats the orders.
    self = self_;
  }
  options_.on_orders(self, *std::move(decoded));
}

void CoordinatorLink::Backoff(const absl::Status& why) {
  // The next one of the list, or the one that the last one has named, is asked at once.
  if (choice_.current() != address_ && ++left_in_a_row_ <= choice_.addresses().size()) return;
  left_in_a_row_ = 0;
  const std::string error = why.ToString();
  if (error != last_error_) {
    LogWarning("shard", "no link to the coordinator, trying again address=", address_,
               " reason=", error);
    last_error_ = error;
  }
  // Between a half and the whole, so that a cluster's nodes do not come back in step.
  const double share = std::uniform_real_distribution<double>(0.5, 1.0)(jitter_);
  absl::Duration left = backoff_ * share;
  backoff_ = std::min(backoff_ * 2, choice_.has_several()
                                        ? std::min(options_.backoff_max, kMemberBackoffMax)
                                        : options_.backoff_max);
  MutexLock lock(mu_);
  const absl::Time until = Clock::Real().Now() + left;
  while (!stopping_ && left > absl::ZeroDuration()) {
    changed_.WaitFor(mu_, left);
    left = until - Clock::Real().Now();
  }
}

void CoordinatorLink::SendReports(Stream& stream) {
  constexpr std::size_t kMovesPerReport = 512;
  HeartbeatInfo info;
  absl::Time beat_at = absl::InfinitePast();
  for (Due due = AwaitReport(beat_at, info); due != Due::kNothing;
       due = AwaitReport(beat_at, info)) {
    v1::NodeReport report;
    if (due == Due::kMoves) {
      *report.mutable_moves() = ToMessage(options_.reports->Take(kMovesPerReport));
    } else {
      info.device_used_bytes = node_.device_used_bytes();
      info.device_stopped = node_.device_stopped();
      info.steps = node_.StepReports();
      if (options_.log_position) info.log_position = options_.log_position();
      if (options_.load) info.load = options_.load();
      info.log_level = CurrentLogLevel();
      *report.mutable_heartbeat() = ToMessage(info);
      report.mutable_heartbeat()->set_unix_ms(absl::ToUnixMillis(absl::Now()));
    }
    if (!stream.Write(report)) return;
  }
}

CoordinatorLink::Due CoordinatorLink::AwaitReport(absl::Time& beat_at, HeartbeatInfo& info) {
  MutexLock lock(mu_);
  while (linked_) {
    const absl::Duration left = beat_at - Clock::Real().Now();
    if (!registered_) {
      changed_.Wait(mu_);
    } else if (report_now_ || left <= absl::ZeroDuration()) {
      report_now_ = false;
      beat_at = Clock::Real().Now() + heartbeat_;
      info.plan_version = installed_;
      info.failed_plan_version = failed_;
      info.failure = failure_;
      info.sessions_heard = sessions_heard_;
      return Due::kHeartbeat;
    } else if (options_.reports != nullptr && !options_.reports->empty()) {
      return Due::kMoves;
    } else {
      changed_.WaitFor(mu_, left);
    }
  }
  return Due::kNothing;
}

void CoordinatorLink::Install() {
  while (true) {
    std::optional<SessionNews> closed;
    PlanPtr plan;
    NodeId self{};
    {
      MutexLock lock(mu_);
      AwaitWork();
      if (stopping_) return;
      if (IsTimeToClose()) {
        closed = std::exchange(closed_, std::nullopt);
      } else {
        plan = std::exchange(wanted_, nullptr);
      }
      self = self_;
    }
    if (closed.has_value()) {
      CloseSessions(*closed);
    } else {
      InstallPlan(plan, self);
    }
    changed_.NotifyAll();
  }
}

bool CoordinatorLink::IsTimeToClose() const {
  return closed_.has_value() && Clock::Real().Now() >= close_at_;
}

bool CoordinatorLink::IsTimeToInstall() const {
  return wanted_ != nullptr && (has_sessions_ || !closed_.has_value()) &&
         Clock::Real().Now() >= install_at_;
}

// A node that cannot write sessions down goes on with plans: others may read from it.
void CoordinatorLink::AwaitWork() {
  while (!stopping_ && !IsTimeToClose() && !IsTimeToInstall()) {
    const absl::Time now = Clock::Real().Now();
    absl::Time until = closed_.has_value() ? close_at_ : absl::InfiniteFuture();
    // A plan whose time has come waits for the sessions.
    if (wanted_ != nullptr && install_at_ > now) until = std::min(until, install_at_);
    if (until == absl::InfiniteFuture()) {
      changed_.Wait(mu_);
    } else {
      changed_.WaitFor(mu_, until - now);
    }
  }
}

void CoordinatorLink::CloseSessions(const SessionNews& news) {
  const absl::Status status = node_.CloseSessions(news.closed);
  MutexLock lock(mu_);
  if (status.ok()) {
    has_sessions_ = true;
    sessions_heard_ = news.number;
    report_now_ = true;
    return;
  }
  LogWarning("shard", "closed sessions are not written down yet reason=", Message(status));
  SessionNews all = news;
  if (closed_.has_value()) {
    all.number = closed_->number;
    all.closed.Include(closed_->closed);
  }
  closed_ = std::move(all);
  close_at_ = Clock::Real().Now() + heartbeat_;
}

void CoordinatorLink::InstallPlan(const PlanPtr& plan, NodeId self) {
  CrashPoint("shard.install_plan");
  absl::Status status = node_.InstallPlan(plan, self);
  if (status.ok() && options_.on_installed) status = options_.on_installed(*plan);
  CrashPoint("shard.plan_installed");
  if (!status.ok()) {
    LogWarning("shard", "plan not installed version=", ToInt(plan->version()),
               " reason=", Message(status));
  }
  MutexLock lock(mu_);
  if (status.ok()) {
    installed_ = std::max(installed_, plan->version());
    failed_ = PlanVersion{};
    failure_ = absl::OkStatus();
    install_backoff_ = options_.backoff_min;
  } else {
    failed_ = plan->version();
    failure_ = status;
    if (wanted_ == nullptr) wanted_ = plan;
    install_at_ = Clock::Real().Now() + install_backoff_;
    install_backoff_ = std::min(2 * install_backoff_, options_.backoff_max);
  }
  report_now_ = true;
}

}  // namespace embla
