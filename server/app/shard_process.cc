#include "server/app/shard_process.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/byte_text.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/host_memory.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/metrics/instruments.h"
#include "core/metrics/names.h"
#include "core/wire/redirect.h"
#include "server/app/load_meter.h"
#include "server/app/server_security.h"
#include "server/gpu/pinned_buffers.h"
#include "server/migration/copy_orders.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/listen_address.h"
#include "server/rpc/listening_socket.h"
#include "server/shard/session_gate.h"

namespace embla {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// Peers cannot connect to "any address"; this machine's name is the best guess.
absl::StatusOr<std::string> AdvertisedAddress(const ShardProcessOptions& options,
                                              const std::string& address) {
  if (!options.advertise.empty()) return options.advertise;
  EMBLA_ASSIGN_OR_RETURN(ListenAddress listen, ParseListenAddress(address));
  if (listen.host != "0.0.0.0" && listen.host != "::") return address;
  return absl::StrCat(HostName(), ":", listen.port);
}

// Memory for replies: GPUs write their results to where they are sent from.
std::shared_ptr<BufferMemory> MemoryOfBuffers(const std::vector<gpu::Device*>& gpus) {
  for (gpu::Device* const gpu : gpus) {
    if (gpu == nullptr) continue;
    return std::make_shared<gpu::PinnedBuffers>(*gpu, BufferPool::kRetainedBytesMax);
  }
  return BufferMemory::HugePages();
}

std::ptrdiff_t CountGpus(const std::vector<DeviceSpec>& devices) {
  return std::ranges::count(devices, DeviceKind::kGpu, &DeviceSpec::kind);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardProcess>> ShardProcess::Start(
    const ShardProcessOptions& options) {
  EMBLA_RETURN_IF_ERROR(options.data.Validate());
  for (const std::string& address : wire::SplitAddresses(options.coordinator)) {
    EMBLA_RETURN_IF_ERROR(ParseListenAddress(address).status());
  }
  EMBLA_ASSIGN_OR_RETURN(const TlsPtr tls, LoadServerTls(options.tls, Role::kNode));
  ShardProcessOptions named = options;
  if (named.name.empty()) named.name = tls == nullptr ? HostName() : tls->identity().name;
  if (tls != nullptr) EMBLA_RETURN_IF_ERROR(CheckName(tls->identity(), "node", named.name));
  std::unique_ptr<ShardProcess> process(new ShardProcess(named, tls));
  EMBLA_RETURN_IF_ERROR(TellExposure({options.server.listen}, tls != nullptr, process->metrics_));
  EMBLA_RETURN_IF_ERROR(process->ExposeMetrics());
  EMBLA_RETURN_IF_ERROR(process->MakeNode());
  EMBLA_RETURN_IF_ERROR(process->Listen());
  EMBLA_RETURN_IF_ERROR(process->Join());
  return process;
}

ShardProcess::ShardProcess(const ShardProcessOptions& options, TlsPtr tls)
    : options_(options),
      tls_(std::move(tls)),
      pool_(BufferPool::kRetainedBytesMax, MemoryOfBuffers(options.gpus)),
      key_(options.cluster_key_file, options.cluster_key),
      peers_(key_, options.name, Clock::Real(), tls_) {
  SetBuildInfo(metrics_, "embla-shard");
  process_metrics_.SetNode(options_.name, "");
}

absl::StatusOr<std::unique_ptr<ShardNode>> ShardProcess::MakeEmptyNode() {
  ShardNodeOptions node;
  node.name = options_.name;
  node.devices = options_.devices;
  node.gpus = options_.gpus;
  node.collectives = options_.collectives;
  node.gpu_cache_bytes = options_.gpu_cache_bytes;
  node.gpu_cache_policy = options_.gpu_cache_policy;
  node.threads_per_device = options_.threads_per_device;
  if (node.threads_per_device == 0) {
    const auto devices = std::max(static_cast<std::uint32_t>(options_.devices.size()), 1u);
    node.threads_per_device = std::max(std::thread::hardware_concurrency() / devices, 1u);
  }
  node.reply_bytes_max = options_.data.limits.reply_bytes_max;
  node.metrics = &metrics_;
  return ShardNode::Create(std::move(node), pool_);
}

absl::Status ShardProcess::MakeNode() {
  if (options_.data_dir.empty()) {
    EMBLA_ASSIGN_OR_RETURN(node_, MakeEmptyNode());
  } else {
    EMBLA_RETURN_IF_ERROR(Recover());
  }
  key_.OnChange([this](const ClusterKeyPtr& key) { node_->sessions().SetKey(key); });
  if (!options_.data_dir.empty()) key_.KeepIn(options_.data_dir + "/cluster.key");
  // Loads the key from its last place, so that requests can be judged before the coordinator
  // answers. Else it is found with the link.
  (void)key_.Load(directory_ != nullptr ? directory_->identity().key_path : "");
  node_->set_replica_transport(&peers_);
  MoveLog& log = journal_ != nullptr ? static_cast<MoveLog&>(*journal_) : move_log_;
  mover_ = std::make_unique<MoverThread>(
      options_.mover, MoverParts{node_->units(), peers_, move_reports_, log, Clock::Real()},
      &metrics_);
  if (journal_ == nullptr) return absl::OkStatus();
  mover_->mover().Restore(journal_->recovery().node);
  journal_->StartSnapshots(
      [&mover = mover_->mover()](const auto& work) { return mover.WhileLogged(work); });
  return absl::OkStatus();
}

absl::Status ShardProcess::Recover() {
  process_metrics_.Watch("journal", options_.data_dir);
  EMBLA_ASSIGN_OR_RETURN(storage_, DirectoryLogStorage::Open(options_.data_dir));
  EMBLA_ASSIGN_OR_RETURN(directory_, NodeDirectory::Open(options_.data_dir, options_.name));
  NodeJournalOptions journal;
  journal.level = options_.durability;
  journal.metrics = &metrics_;
  journal.snapshots = options_.snapshots;
  journal.directory_bytes = BytesOfFiles(options_.data_dir);
  journal.progress_every = absl::Seconds(2);
  journal.on_progress = [this](const JournalProgress& progress) {
    const std::string how_far = progress.Text();
    SetReady(absl::UnavailableError(absl::StrCat("recovering the journal: ", how_far)));
    LogInfo("shard", "recovering progress=\"", how_far, "\" records=", progress.records);
  };
  SetReady(absl::UnavailableError("recovering the journal"));
  LogInfo("shard", "recovering directory=", options_.data_dir, " bytes=", journal.directory_bytes);
  EMBLA_ASSIGN_OR_RETURN(NodeJournal::Opened opened,
                         NodeJournal::Open(*storage_, journal, [this] { return MakeEmptyNode(); }));
  journal_ = std::move(opened.journal);
  node_ = std::move(opened.node);
  const JournalRecovery& recovery = journal_->recovery();
  LogInfo("shard", "recovered directory=", options_.data_dir,
          " process=", recovery.node.log_process, " records=", recovery.records,
          " bytes=", recovery.bytes, " snapshot=", recovery.snapshot,
          " snapshot_bytes=", recovery.snapshot_bytes, " updates=", recovery.updates,
          " units=", recovery.node.units.size(), " plan=", ToInt(node_->plan()->version()),
          " seconds=", absl::ToDoubleSeconds(recovery.took));
  return absl::OkStatus();
}

// Before the journal is repeated, which may take long.
absl::Status ShardProcess::ExposeMetrics() {
  EMBLA_ASSIGN_OR_RETURN(exposer_, Expose({.listen = options_.metrics_listen,
                                           .insecure = options_.server.insecure,
                                           .ready = [this] { return readiness_.Get(); }},
                                          tls_, metrics_, process_metrics_));
  return absl::OkStatus();
}

bool ShardProcess::IsInDoubt() const {
  if (options_.await_coordinator || options_.accept_loss) return true;
  return directory_ != nullptr && directory_->was_copied();
}

absl::Status ShardProcess::AnswerThatItWaits(RpcServerOptions options) {
  options.accepts = true;
  options.answer_unknown = [] {
    return grpc::Status(
        grpc::StatusCode::UNAVAILABLE,
        "the node waits for the coordinator before it serves; its /readyz says why");
  };
  EMBLA_ASSIGN_OR_RETURN(waiting_, RpcServer::Start(options, {}));
  return absl::OkStatus();
}

void ShardProcess::Serve() {
  waiting_.reset();
  absl::Status status = directory_ == nullptr ? absl::OkStatus() : directory_->NotePlace();
  status.Update(server_->BeginAccepting());
  if (!status.ok()) {
    LogError("shard", "the node cannot begin to serve reason=", Message(status));
    return;
  }
  if (is_held_.exchange(false)) LogInfo("shard", "the coordinator lets this process serve");
  SetReady(ToInt(node_->plan()->version()) > 0 ? absl::OkStatus()
                                               : absl::UnavailableError("no plan yet"));
}

void ShardProcess::SetReady(absl::Status status) {
  if (status.ok() && is_held_) {
    status = absl::UnavailableError(
        "the node's directory was copied, or rows of it are lost: it waits for the coordinator, "
        "which has moves of its predecessor ended first");
  }
  if (server_ != nullptr) server_->SetServing(status.ok());
  readiness_.Set(std::move(status));
}

absl::Status ShardProcess::Listen() {
  DataServiceOptions data = options_.data;
  data.tls = tls_;
  data.connection_age = options_.server.connection_age;
  service_ = std::make_unique<DataService>(*node_, pool_, &metrics_, data);
  service_->ServePeers(key_);
  service_->ServeMoves([&mover = mover_->mover()](PeerMessage message) {
    return mover.OnMessage(std::move(message));
  });
  inspect_ = std::make_unique<InspectService>(*node_);
  grpc::Service* const services[] = {service_.get(), inspect_.get()};
  RpcServerOptions server = options_.server;
  server.metrics = &metrics_;
  server.tls = tls_;
  server.take_frames = service_->TakesFrames();
  server.port = absl::StrCat("the data port of shard server ", options_.name,
                             "; --coordinator and --admin want the coordinator's ports");
  server.is_serving = false;
  server.health_services = {"embla.v1.DataService", "embla.v1.InspectService"};
  is_held_ = IsInDoubt();
  server.accepts = !is_held_;
  EMBLA_ASSIGN_OR_RETURN(
      const ListenAddress listen,
      CheckListenAddress(server.listen, server.insecure || server.tls != nullptr));
  EMBLA_ASSIGN_OR_RETURN(listening_, embla::Listen(listen));
  server.listening = &listening_;
  EMBLA_ASSIGN_OR_RETURN(server_, RpcServer::Start(server, services));
  if (is_held_) EMBLA_RETURN_IF_ERROR(AnswerThatItWaits(server));
  memory_return_ = std::make_unique<MemoryReturn>(
      MemoryReturnOptions{.pool = &pool_,
                          .requests = [this] { return service_->requests(); },
                          .kept_bytes_max = options_.kept_heap_bytes,
                          .kept_bytes = metrics_.MakeGauge(MetricNamed("embla_kept_heap_bytes"))});
  return absl::OkStatus();
}

void ShardProcess::AnswerAboutCopies(std::span<const UnitOrder> orders) {
  std::vector<UnitReport> answers;
  for (const UnitOrder& order : orders) {
    if (!IsCopy(order.unit)) continue;
    const ShardNode::CopyView copy = node_->ViewCopy(order.unit.table);
    if (copy.plan_version < PlanOf(order)) continue;  // The coordinator repeats the question.
    if (order.source_is_lost && copy.is_here) node_->LeadAsItIs(order.unit.table);
    UnitReport::Kind kind = copy.has_all ? kCopyMayLead : kCopyOnItsWay;
    if (copy.serves) kind = kCopyServes;
    if (copy.leads) kind = kCopyLeads;
    if (!copy.is_here) kind = kCopyGone;
    answers.push_back(AnswerAboutCopy(order.unit.table, PlanOf(order), kind));
  }
  if (!answers.empty()) move_reports_.Report(std::move(answers));
}

void ShardProcess::DescribePast(NodeRegistration& registration) const {
  registration.accept_loss = options_.accept_loss;
  if (directory_ == nullptr) return;
  const NodeIdentity identity = directory_->identity();
  registration.cluster_id = identity.cluster_id;
  registration.testimony = identity.testimony;
  registration.past = {.directory_id = identity.directory_id,
                       .node = identity.node_id,
                       .generation = identity.generation,
                       .plan_version = std::max(identity.plan_version, node_->plan()->version()),
                       .table = identity.table,
                       .store_revision = Revision{identity.store_revision},
                       .log_position = journal_->end(),
                       .process = journal_->recovery().node.log_process};
}

absl::Status ShardProcess::NoteRegistered(const v1::Registered& registered) {
  if (directory_ == nullptr) return absl::OkStatus();
  return directory_->NoteRegistered({.cluster_id = registered.cluster_id(),
                                     .node_id = NodeId{registered.node_id()},
                                     .key_path = key_.path(),
                                     .generation = registered.generation(),
                                     .store_revision = registered.store_revision()});
}

absl::Status ShardProcess::NotePlan(const Plan& plan) {
  if (directory_ == nullptr) return absl::OkStatus();
  const TableId table = plan.tables().empty() ? TableId{} : plan.tables().back().spec.id;
  return directory_->NotePlan(plan.version(), table);
}

absl::Status ShardProcess::Join() {
  CoordinatorLinkOptions link;
  link.coordinator = options_.coordinator;
  link.tls = tls_;
  link.key = &key_;
  SetReady(absl::UnavailableError("no coordinator yet"));
  link.on_refused = [this](const absl::Status& status) {
    SetReady(Annotate(status, "the coordinator refuses this node"));
    if (options_.on_refused) options_.on_refused(status);
  };
  link.heartbeat = options_.heartbeat;
  link.jitter_seed = RandomId64();
  link.reports = &move_reports_;
  link.describe = [this](NodeRegistration& registration) {
    DescribePast(registration);
    if (ToInt(node_->plan()->version()) > 0) registration.installed = node_->plan();
    registration.units = mover_->mover().UnitsElsewhere();
    for (const UnitStandings& units : node_->OwnedUnits()) registration.units.push_back(units);
  };
  link.on_registered = [this](const v1::Registered& registered) {
    process_metrics_.SetNode(options_.name, registered.cluster_id());
    const bool has_plan = ToInt(node_->plan()->version()) > 0;
    SetReady(has_plan ? absl::OkStatus() : absl::UnavailableError("no plan yet"));
    return NoteRegistered(registered);
  };
  link.on_serve = [this] { Serve(); };
  link.on_installed = [this](const Plan& plan) {
    SetReady(absl::OkStatus());
    std::map<NodeId, std::string> addresses;
    for (const NodeSpec& node : plan.nodes()) addresses[node.id] = node.address;
    mover_->mover().OnPlan(plan.version(), std::move(addresses));
    std::set<TableId> tables;
    for (const TablePlan& table : plan.tables()) tables.insert(table.spec.id);
    mover_->mover().KeepTables(std::move(tables));
    return NotePlan(plan);
  };
  if (directory_ != nullptr) {
    link.on_testimony = [this](const std::string& text) { return directory_->NoteTestimony(text); };
  }
  link.load = [meter = std::make_shared<LoadMeter>(metrics_, options_.devices.size(),
                                                   Clock::Real().Now())] {
    return meter->Look(Clock::Real().Now());
  };
  if (journal_ != nullptr) link.log_position = [this] { return journal_->durable_end(); };
  link.on_orders = [this](NodeId self, std::vector<UnitOrder> orders) {
    AnswerAboutCopies(orders);
    std::erase_if(orders, [](const UnitOrder& order) { return IsCopy(order.unit); });
    mover_->mover().OnOrders(self, std::move(orders));
  };
  link.registration.name = options_.name;
  link.registration.devices = options_.devices;
  link.registration.host_memory = FindHostMemory();
  link.registration.boot_id = RandomId64();
  EMBLA_ASSIGN_OR_RETURN(link.registration.address, AdvertisedAddress(options_, address()));
  LogInfo("shard", "serving name=", options_.name, " address=", link.registration.address,
          " devices=", options_.devices.size(), " gpus=", CountGpus(options_.devices),
          " memory_per_device=", options_.devices.front().memory_bytes,
          " metrics=", metrics_address());
  link_ = std::make_unique<CoordinatorLink>(std::move(link), *node_);
  return absl::OkStatus();
}

ShardProcess::~ShardProcess() {
  link_.reset();
  waiting_.reset();
  SetReady(absl::UnavailableError("the node stops"));
  if (server_ != nullptr) {
    service_->Drain();
    // A peer that is silent must keep no call here from its end.
    node_->BeginStop();
    peers_.CancelCalls();
    server_->Shutdown(options_.stop_grace);
    server_.reset();
    // Messages of peers that came by sockets are answered while the node is there.
    service_.reset();
  }
  if (journal_ != nullptr) journal_->StopSnapshots();
  mover_.reset();
  if (journal_ == nullptr) return;
  // While the node is there to hear what became of its records.
  if (const absl::Status closed = journal_->Close(); !closed.ok()) {
    LogError("shard", "the journal did not close: ", closed.message());
  }
  node_.reset();
}

}  // namespace embla
