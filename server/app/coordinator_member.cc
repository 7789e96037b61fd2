#include "server/app/coordinator_member.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/metrics/names.h"
#include "embla/v1/redirect.pb.h"
#include "server/app/server_security.h"
#include "server/rpc/listen_address.h"

namespace embla {
namespace {

// Proves that the key of a coordinator is the cluster's; no key can be made from it.
constexpr std::string_view kKeyProofKey = "cluster_key_proof";
constexpr std::string_view kKeyProofLabel = "embla state 1";

// After a failure a candidate lets the others go first.
constexpr absl::Duration kStandAside = absl::Seconds(2);

std::string KeyProof(const ClusterKey& key) {
  return absl::BytesToHexString(key.Sign(kKeyProofLabel, {}));
}

absl::Status CheckKeyProof(const ClusterKey& key, const std::string& proof,
                           const std::string& file) {
  if (key.Verify(kKeyProofLabel, {}, absl::HexStringToBytes(proof))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the cluster whose state is in etcd has another key than ", file,
                   ": give every coordinator a copy of one --cluster-key FILE"));
}

absl::StatusOr<wire::Redirect> ReadCandidate(const std::string& value) {
  v1::Redirect message;
  if (!message.ParseFromString(value)) return absl::DataLossError("no candidate");
  return wire::Redirect{message.coordinator(), message.admin(), message.cluster_id(),
                        message.console()};
}

std::string CandidateText(const wire::Redirect& candidate) {
  v1::Redirect message;
  message.set_coordinator(candidate.coordinator);
  message.set_admin(candidate.admin);
  message.set_cluster_id(candidate.cluster_id);
  message.set_console(candidate.console);
  return message.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorMember>> CoordinatorMember::Start(
    const CoordinatorMemberOptions& options) {
  std::unique_ptr<CoordinatorMember> member(new CoordinatorMember(options));
  EMBLA_RETURN_IF_ERROR(member->Prepare());
  EMBLA_RETURN_IF_ERROR(member->Listen());
  member->election_thread_ = std::thread([member = member.get()] { member->Elect(); });
  member->role_thread_ = std::thread([member = member.get()] { member->Act(); });
  LogInfo("coordinator", "standing by address=", member->address(),
          " admin=", member->admin_address(), " metrics=", member->metrics_address(),
          " etcd_prefix=", options.etcd.prefix);
  return member;
}

CoordinatorMember::CoordinatorMember(const CoordinatorMemberOptions& options)
    : options_(options),
      leads_gauge_(metrics_.MakeGauge(MetricNamed("embla_coordinator_leads"))),
      etcd_status_(absl::UnavailableError("etcd was not asked yet")) {
  SetBuildInfo(metrics_, "embla-coordinator");
}

absl::Status CoordinatorMember::Prepare() {
  if (options_.process.cluster_key_file.empty()) {
    return absl::InvalidArgumentError(
        "several coordinators have one key: state --cluster-key FILE, the same on all of them");
  }
  EMBLA_ASSIGN_OR_RETURN(tls_, LoadServerTls(options_.process.tls, Role::kCoordinator));
  EMBLA_RETURN_IF_ERROR(TellExposure({options_.process.listen, options_.process.admin_listen},
                                     tls_ != nullptr, metrics_));
  EMBLA_ASSIGN_OR_RETURN(ClusterKey key, ReadClusterKey(options_.process.cluster_key_file));
  key_ = std::make_shared<const ClusterKey>(std::move(key));
  EMBLA_ASSIGN_OR_RETURN(etcd_, MakeEtcdClient({.members = options_.etcd.members,
                                                .ca_file = options_.etcd_ca_file,
                                                .cert_file = options_.etcd_cert_file,
                                                .key_file = options_.etcd_key_file}));
  return CheckKey();
}

// Found at the start, not when this one has to lead.
absl::Status CoordinatorMember::CheckKey() const {
  const EtcdLayout layout(options_.etcd.prefix);
  constexpr int kTries = 3;  // One for each member, mostly.
  absl::StatusOr<EtcdListing> found;
  for (int i = 0; i < kTries; ++i) {
    found = etcd_->List(layout.Data() + std::string(kKeyProofKey), absl::Seconds(3));
    if (!IsWorthRetry(found.status())) break;
  }
  EMBLA_RETURN_IF_ERROR(found.status());
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, layout.Read(*found, {}));
  for (const StateEntry& entry : entries) {
    if (entry.key != kKeyProofKey) continue;
    EMBLA_RETURN_IF_ERROR(CheckKeyProof(*key_, entry.value, options_.process.cluster_key_file));
  }
  return absl::OkStatus();
}

absl::Status CoordinatorMember::NoteKey() const {
  const std::string proof = KeyProof(*key_);
  const auto noted = store_->Get(kKeyProofKey);
  if (noted.ok()) {
    EMBLA_RETURN_IF_ERROR(CheckKeyProof(*key_, noted->value, options_.process.cluster_key_file));
    if (noted->value == proof) return absl::OkStatus();
  }
  const StateWrite write{std::string(kKeyProofKey), proof};
  return store_->Commit({}, {&write, 1}).status();
}

absl::Status CoordinatorMember::Listen() {
  const CoordinatorProcessOptions& process = options_.process;
  EMBLA_ASSIGN_OR_RETURN(const ListenAddress listen,
                         CheckListenAddress(process.listen, process.insecure || tls_ != nullptr));
  EMBLA_ASSIGN_OR_RETURN(
      const ListenAddress admin,
      CheckListenAddress(process.admin_listen, process.insecure || tls_ != nullptr));
  EMBLA_ASSIGN_OR_RETURN(listening_, embla::Listen(listen));
  EMBLA_ASSIGN_OR_RETURN(admin_listening_, embla::Listen(admin));
  address_ = listen.WithPort(listening_.port);
  admin_address_ = admin.WithPort(admin_listening_.port);
  self_ = {options_.advertise.empty() ? address_ : options_.advertise,
           options_.admin_advertise.empty() ? admin_address_ : options_.admin_advertise, ""};
  shared_ = {&metrics_, &console_, nullptr, &listening_, &admin_listening_};
  EMBLA_ASSIGN_OR_RETURN(exposer_, Expose({.listen = process.metrics_listen,
                                           .insecure = process.insecure,
                                           .ready = [this] { return ready(); },
                                           .role = [this] { return Role(); },
                                           .routes = console_.Routes()},
                                          tls_, metrics_, process_metrics_));
  self_.console = ConsoleUrl();
  EtcdElectionOptions election{.prefix = EtcdLayout(options_.etcd.prefix).Election(),
                               .ttl = options_.lease};
  election.keep_alive = options_.lease / 4;
  election_ = std::make_unique<EtcdElection>(*etcd_, Clock::Real(), election, CandidateText(self_));
  return StandBy();
}

CoordinatorMember::~CoordinatorMember() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (role_thread_.joinable()) role_thread_.join();
  {
    const MutexLock lock(mu_);
    is_standing_ = false;
    changed_.NotifyAll();
  }
  if (election_thread_.joinable()) election_thread_.join();
}

void CoordinatorMember::Elect() {
  std::string value = CandidateText(self_);
  while (true) {
    bool stands_aside = false;
    wire::Redirect mine = self_;
    {
      const MutexLock lock(mu_);
      if (!is_standing_) break;
      stands_aside = Clock::Real().Now() < not_before_;
      if (serves_) mine.cluster_id = cluster_id_;
    }
    if (stands_aside) {
      election_->Resign();
      Note(ElectionView{});
    } else {
      Note(election_->Step());
    }
    if (const std::string wanted = CandidateText(mine); wanted != value) {
      if (election_->SetValue(wanted).ok()) value = wanted;
    }
    const MutexLock lock(mu_);
    if (is_standing_) changed_.WaitFor(mu_, options_.step);
  }
  election_->Resign();
}

void CoordinatorMember::Note(const absl::StatusOr<ElectionView>& view) {
  const MutexLock lock(mu_);
  if (const wire::Redirect leader = Leader(); !leader.cluster_id.empty()) {
    cluster_id_ = leader.cluster_id;
  }
  etcd_status_ = view.status();
  if (view.ok()) view_ = *view;
  leads_until_ = election_->leads_until();
  if (!view.ok() && Clock::Real().Now() >= leads_until_) view_ = {};
  changed_.NotifyAll();
}

bool CoordinatorMember::AwaitChange(bool is_leader, std::vector<EtcdCompare>& fence) {
  const MutexLock lock(mu_);
  while (!stopping_) {
    const bool may_lead = view_.leads && Clock::Real().Now() < leads_until_;
    if (may_lead != is_leader || (is_leader && view_.fence != fence)) {
      fence = may_lead ? view_.fence : std::vector<EtcdCompare>();
      return true;
    }
    if (is_leader && !leader_->ready().ok()) {
      fence = {};
      return true;
    }
    changed_.WaitFor(mu_, options_.step);
  }
  return false;
}

void CoordinatorMember::Act() {
  std::vector<EtcdCompare> fence;
  while (AwaitChange(leader_ != nullptr, fence)) {
    if (leader_ != nullptr) {
      const absl::Status status = leader_->ready();
      StopLeading(status.ok() ? "another one leads, or etcd has not prolonged its lease in time"
                              : Message(status));
      continue;
    }
    const absl::Status led = Lead(fence);
    if (led.ok()) continue;
    LogError("coordinator", "cannot lead reason=", Message(led));
    StopLeading(Message(led));
  }
  if (leader_ != nullptr) StopLeading("it is stopping");
  standby_.reset();
  admin_standby_.reset();
}

absl::Status CoordinatorMember::Lead(const std::vector<EtcdCompare>& fence) {
  const absl::Time begun = Clock::Real().Now();
  EtcdStoreOptions store{.prefix = options_.etcd.prefix, .fence = fence};
  store.timeout = options_.lease;
  store.on_synced = [seconds = metrics_.MakeHistogram(MetricNamed("embla_store_sync_seconds"))](
                        absl::Duration took) { seconds.Observe(took); };
  EMBLA_ASSIGN_OR_RETURN(store_, EtcdStateStore::Open(*etcd_, Clock::Real(), store));
  EMBLA_RETURN_IF_ERROR(NoteKey());
  shared_.store = store_.get();
  CoordinatorProcessOptions process = options_.process;
  process.shared = &shared_;
  standby_.reset();
  admin_standby_.reset();
  EMBLA_ASSIGN_OR_RETURN(leader_, CoordinatorProcess::Start(process));
  leads_gauge_.Set(1);
  LogInfo("coordinator", "leads took=", absl::FormatDuration(Clock::Real().Now() - begun),
          " revision=", static_cast<std::uint64_t>(store_->revision()));
  const MutexLock lock(mu_);
  serves_ = true;
  cluster_id_ = leader_->plan()->cluster_id();
  changed_.NotifyAll();
  return absl::OkStatus();
}

void CoordinatorMember::StopLeading(const std::string& why) {
  leads_gauge_.Set(0);
  {
    const MutexLock lock(mu_);
    serves_ = false;
    if (!stopping_) not_before_ = Clock::Real().Now() + kStandAside;
    changed_.NotifyAll();
  }
  if (leader_ != nullptr) LogWarning("coordinator", "leads no more reason=", why);
  leader_.reset();
  store_.reset();
  bool is_stopping = false;
  {
    const MutexLock lock(mu_);
    is_stopping = stopping_;
  }
  if (is_stopping) return;
  if (const absl::Status status = StandBy(); !status.ok()) {
    LogError("coordinator", "cannot stand by reason=", Message(status));
  }
}

absl::Status CoordinatorMember::StandBy() {
  if (standby_ != nullptr && admin_standby_ != nullptr) return absl::OkStatus();
  RpcServerOptions server{.listen = options_.process.admin_listen,
                          .insecure = options_.process.insecure,
                          .tls = tls_,
                          .connection_age = options_.process.connection_age,
                          .connections = options_.process.connections,
                          .is_serving = false,
                          .listening = &admin_listening_,
                          .answer_unknown = [this] { return Redirect(); },
                          .ping_interval_min = kPingIntervalMin};
  EMBLA_ASSIGN_OR_RETURN(admin_standby_, RpcServer::Start(server, {}));
  server.listen = options_.process.listen;
  server.listening = &listening_;
  EMBLA_ASSIGN_OR_RETURN(standby_, RpcServer::Start(server, {}));
  return absl::OkStatus();
}

// A candidate that leads says its cluster's id once its store is open.
wire::Redirect CoordinatorMember::Leader() const {
  const absl::StatusOr<wire::Redirect> candidate = ReadCandidate(view_.leader);
  if (!candidate.ok() || view_.leads || candidate->cluster_id.empty()) return {};
  return *candidate;
}

grpc::Status CoordinatorMember::Redirect() const {
  wire::Redirect leader;
  {
    const MutexLock lock(mu_);
    leader = Leader();
    if (leader.cluster_id.empty()) leader.cluster_id = cluster_id_;
  }
  return wire::RedirectStatus(
      leader, leader.coordinator.empty()
                  ? "this coordinator is a standby, and none leads at present: try again"
                  : absl::StrCat("this coordinator is a standby: ask the one that leads, ",
                                 leader.coordinator, " (operators: ", leader.admin, ")"));
}

absl::Status CoordinatorMember::ready() const {
  const MutexLock lock(mu_);
  if (serves_) return absl::OkStatus();
  return Annotate(etcd_status_, "standby");
}

StandbyFacts CoordinatorMember::LeaderForConsole() const {
  const MutexLock lock(mu_);
  const wire::Redirect leader = Leader();
  return {.coordinator = leader.coordinator, .admin = leader.admin, .console = leader.console};
}

std::string CoordinatorMember::ConsoleUrl() const {
  const absl::StatusOr<ListenAddress> listen = ParseListenAddress(options_.process.metrics_listen);
  if (exposer_ == nullptr || !listen.ok()) return "";
  const std::string& address = exposer_->address();
  if (listen->loopback) return absl::StrCat("http://", address, "/console/");
  // Where others reach this coordinator, they reach its page.
  const absl::StatusOr<ListenAddress> reached = ParseListenAddress(self_.coordinator);
  if (!reached.ok() || reached->unix_socket) return "";
  const std::string host = self_.coordinator.substr(0, self_.coordinator.rfind(':'));
  return absl::StrCat(tls_ == nullptr ? "http://" : "https://", host,
                      address.substr(address.rfind(':')), "/console/");
}

std::string CoordinatorMember::Role() const {
  const MutexLock lock(mu_);
  if (serves_) return "leader";
  const wire::Redirect leader = Leader();
  if (leader.coordinator.empty()) return "standby, and none leads at present";
  return "standby, the leader is " + leader.coordinator;
}

}  // namespace embla
