#include "tests/fault/chaos_run.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::fault {
namespace {

constexpr int kStaleRequests = 24;  // Requests in one fault of the kind.
constexpr absl::Duration kHealTimeout = absl::Seconds(30);
constexpr absl::Duration kTableLook = absl::Milliseconds(5);  // Between two looks at tables.
constexpr std::size_t kFindingsShown = 40;
// So that a run's parts draw different numbers.
constexpr std::uint64_t kJobSeed = 1'000'003;

}  // namespace

ChaosRun::ChaosRun(const ChaosOptions& options)
    : options_(options), walk_(options.walk, options.shards) {}

ChaosRun::~ChaosRun() { jobs_.reset(); }

void ChaosRun::Say(const std::string& line) const {
  const MutexLock lock(mu_);
  std::cout << line << std::endl;
}

void ChaosRun::AddFinding(const std::string& what) {
  {
    const MutexLock lock(mu_);
    report_.findings.push_back(what);
    if (report_.findings.size() > kFindingsShown) return;
  }
  Say(absl::StrCat("FINDING ", what));
}

absl::Status ChaosRun::StartCluster() {
  ChaosClusterOptions cluster;
  cluster.shards = options_.shards;
  cluster.devices_per_shard = options_.devices_per_shard;
  cluster.trainers = options_.trainers;
  cluster.has_data_dirs = options_.kills_shards;
  cluster.shard_flags = options_.shard_flags;
  cluster.first_failpoints = options_.planted;
  cluster.seed = options_.seed;
  cluster.directory = options_.directory;
  EMBLA_ASSIGN_OR_RETURN(
      cluster_, ChaosCluster::Start(
                    cluster,
                    [this](int victim, const std::string& failpoint) {
                      coverage_.AddFailpoint(failpoint.substr(0, failpoint.find('=')));
                      if (options_.is_verbose) {
                        Say(absl::StrCat("  ", cluster_->NameOf(victim), " died at ", failpoint));
                      }
                    },
                    [this](const std::string& what) { AddFinding(what); }));
  return ReplaceTables();
}

// Requires: the trainers pause.
absl::Status ChaosRun::ReplaceTables() {
  EMBLA_ASSIGN_OR_RETURN(const auto admin, cluster_->ConnectAdmin());
  for (const auto& table : tables_) {
    EMBLA_RETURN_IF_ERROR(
        admin->Call<v1::DropTableReply>(client::DropTableRequest(table->name())).status());
  }
  EMBLA_ASSIGN_OR_RETURN(tables_,
                         OpenTables(++tables_made_, options_.trainers, options_.directory));
  for (const auto& table : tables_) {
    EMBLA_RETURN_IF_ERROR(table->Create(*admin, options_.devices_per_shard));
  }
  return absl::OkStatus();
}

ChaosReport ChaosRun::Run() {
  const absl::Status started = StartCluster();
  if (!started.ok()) AddFinding(absl::StrCat("the cluster does not start: ", Message(started)));
  int phase = 0;
  bool goes_on = started.ok() && RunPhase(phase++);
  while (goes_on && HasFaultsLeft()) goes_on = RunPhase(phase++);
  for (const FailpointPlace* const place : walk_.forgetting()) {
    goes_on = goes_on && RunForgetting(*place);
  }
  Say(coverage_.Table());
  if (started.ok()) SayTotals();
  const MutexLock lock(mu_);
  report_.faults = coverage_.faults();
  return report_;
}

void ChaosRun::SayTotals() {
  std::uint64_t acknowledged = 0, settled = 0, lookups = 0, failed = 0, sessions = 0, timed_out = 0;
  for (const TrainerSlot& slot : cluster_->board().slots()) {
    acknowledged += slot.acknowledged;
    settled += slot.settled;
    lookups += slot.lookups;
    failed += slot.lookups_failed;
    sessions += slot.sessions;
    timed_out += slot.connects_timed_out;
  }
  Say(absl::StrCat("units moved ", units_moved_, "; sessions ", sessions,
                   ", updates of closed ones ", settled, ", connects timed out ", timed_out,
                   "; lookups ", lookups, ", failed ", failed, "; back to work within ",
                   absl::FormatDuration(recovery_max_)));
  const MutexLock lock(mu_);
  report_.acknowledged = acknowledged;
}

std::vector<std::vector<Fault>> ChaosRun::NextFaults(int phase, std::uint64_t seed) {
  if (!options_.walk.empty()) return walk_.NextPhase();
  return DrawSchedule(
      seed, {.shards = options_.shards,
             .trainers = options_.trainers,
             .kills_shards = options_.kills_shards,
             .lanes = options_.lanes,
             .faults = std::min(options_.faults_per_phase, options_.faults - coverage_.faults())});
}

bool ChaosRun::HasFaultsLeft() const {
  return options_.walk.empty() ? coverage_.faults() < options_.faults : !walk_.is_over();
}

bool ChaosRun::RunForgetting(const FailpointPlace& place) {
  Say(absl::StrCat("a node is lost and forgotten: ", ArmedAt(place)));
  cluster_->Arm();
  cluster_->board().Tell({.tables = static_cast<std::uint32_t>(tables_made_), .trains = true});
  const absl::Status forgotten = ForgetLostNode(place, *cluster_);
  coverage_.Add(NameOf(FaultKind::kKill), "idle", NameOf(FaultKind::kKill));
  if (!forgotten.ok()) {
    AddFinding(absl::StrCat(ArmedAt(place), ": ", Message(forgotten), "\n", cluster_->LogTails()));
    return false;
  }
  cluster_->Disarm();
  return Judge();
}

bool ChaosRun::RunPhase(int phase) {
  const std::uint64_t seed = options_.seed * 1000 + phase;
  const auto lanes = NextFaults(phase, seed);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const Fault& fault : lanes[lane]) {
      Say(absl::StrCat("phase ", phase, " lane ", lane, ": ", fault.Text(options_.shards)));
    }
  }
  std::vector<std::string> names;
  for (const auto& table : tables_) names.push_back(table->name());
  cluster_->Arm();
  jobs_ = std::make_unique<JobDriver>(*cluster_, names, seed + kJobSeed);
  cluster_->board().Tell({.tables = static_cast<std::uint32_t>(tables_made_), .trains = true});
  std::vector<std::thread> threads;
  threads.reserve(lanes.size());
  for (const auto& lane : lanes) threads.emplace_back([this, &lane] { RunLane(lane); });
  for (std::thread& thread : threads) thread.join();
  cluster_->Disarm();
  const bool is_well = Judge();
  Say(absl::StrCat("phase ", phase, " judged: faults ", coverage_.faults(),
                   ", jobs: ", jobs_->Summary()));
  units_moved_ += jobs_->units_moved();
  jobs_.reset();
  return is_well;
}

void ChaosRun::RunLane(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    absl::SleepFor(fault.gap);
    Inject(fault);
  }
}

std::string ChaosRun::RoleOf(const Fault& fault, const MoveState& state) const {
  if (IsOfProcess(fault.kind)) {
    if (fault.victim == kCoordinator) return "coordinator";
    return fault.victim < options_.shards ? state.RoleOf(fault.victim) : "trainer";
  }
  if (fault.kind == FaultKind::kStaleClient) return "all nodes";
  return fault.link == LinkKind::kTrainers ? "trainers" : state.RoleOf(fault.victim);
}

void ChaosRun::Inject(const Fault& fault) {
  std::optional<ChaosCluster::Turn> turn;
  if (IsOfProcess(fault.kind)) {
    turn.emplace(*cluster_, fault.victim);
    cluster_->AwaitRunning(fault.victim);
  }
  const MoveState state = jobs_->Now();
  coverage_.Add(NameOf(fault.kind), state.what, RoleOf(fault, state));
  if (options_.is_verbose) Say(absl::StrCat("  now: ", fault.Text(options_.shards)));
  if (IsOfProcess(fault.kind)) {
    InjectInProcess(fault);
  } else if (fault.kind == FaultKind::kStaleClient) {
    SendStale(fault);
  } else {
    InjectOnLink(fault);
  }
}

void ChaosRun::InjectInProcess(const Fault& fault) {
  if (fault.kind == FaultKind::kStop) {
    cluster_->Stop(fault.victim);
    absl::SleepFor(fault.length);
    return cluster_->Continue(fault.victim);
  }
  absl::Duration down = fault.length;
  if (fault.kind == FaultKind::kFull) {
    cluster_->FillDisk(fault.victim, fault.room_bytes);
    absl::SleepFor(fault.length);
    down = absl::ZeroDuration();
  }
  cluster_->Kill(fault.victim, down, fault.failpoint);
  cluster_->AwaitRunning(fault.victim);
  if (fault.place == nullptr) return;
  const absl::Status died = AwaitDeathAt(*fault.place, *cluster_, {&fault.victim, 1});
  if (!died.ok()) AddFinding(Message(died));
}

void ChaosRun::InjectOnLink(const Fault& fault) {
  FaultProxy& proxy = fault.link == LinkKind::kTrainers ? cluster_->trainer_proxy()
                      : fault.link == LinkKind::kData   ? cluster_->data_proxy(fault.victim)
                                                        : cluster_->link_proxy(fault.victim);
  if (fault.kind == FaultKind::kReset) return proxy.BreakCalls();
  proxy.SetFaults(FaultsOf(fault.kind));
  absl::SleepFor(fault.length);
  proxy.Heal();
}

void ChaosRun::SendStale(const Fault& fault) {
  for (int i = 0; i < kStaleRequests; ++i) {
    const std::optional<OldRequest> old = cluster_->replayer().Draw();
    if (!old.has_value()) return;
    const int shard = i % 2 == 0 ? old->shard : (fault.victim + i) % options_.shards;
    cluster_->data_proxy(shard).Replay(old->method, old->bytes);
  }
}

// Everything is healed from here on.
bool ChaosRun::Judge() {
  for (FaultProxy* const proxy : cluster_->proxies()) proxy->Heal();
  const absl::Time healed = absl::Now();
  if (const absl::Status well = cluster_->AwaitWell(kHealTimeout); !well.ok()) {
    AddFinding(Message(well));
    return false;
  }
  if (!AwaitProgress()) return false;
  recovery_max_ = std::max(recovery_max_, absl::Now() - healed);
  const absl::Status finished = jobs_ == nullptr ? absl::OkStatus() : jobs_->Finish();
  if (!finished.ok()) {
    AddFinding(absl::StrCat(Message(finished), "\n", cluster_->LogTails()));
    return false;
  }
  if (!PauseTrainers()) return false;
  // Past the proxies, and with a plan of its own.
  std::vector<std::unique_ptr<client::Client>> clients;
  for (std::uint32_t group = 0; group < kReplicaGroups; ++group) {
    auto client = client::Client::Connect({.coordinator = cluster_->coordinator_address(),
                                           .timeout = kHealTimeout,
                                           .replica_group = group});
    if (!client.ok()) {
      AddFinding(absl::StrCat("nobody can connect: ", Message(client.status())));
      return false;
    }
    clients.push_back(*std::move(client));
  }
  bool is_full = false;
  for (const auto& table : tables_) {
    VerifyTable(*table);
    JudgeTable(clients, *table);
    is_full = is_full || table->ledger().IsFull();
  }
  if (!is_full) return true;
  const absl::Status replaced = ReplaceTables();
  if (!replaced.ok()) AddFinding(absl::StrCat("new tables: ", Message(replaced)));
  return replaced.ok();
}

bool ChaosRun::PauseTrainers() {
  cluster_->board().Tell({.tables = static_cast<std::uint32_t>(tables_made_), .trains = false});
  const bool is_paused = cluster_->board().AwaitReached(kHealTimeout);
  if (!is_paused) AddHang();
  for (const std::string& damage : cluster_->TakeDamage()) AddFinding(damage);
  return is_paused;
}

// Awaits progress of all trainers: waits for a dead node or a lost message end by themselves.
bool ChaosRun::AwaitProgress() {
  const std::span<const TrainerSlot> trainers = cluster_->board().slots();
  std::vector<std::uint64_t> before;
  for (const TrainerSlot& trainer : trainers) before.push_back(trainer.acknowledged);
  const auto is_full = [](const auto& table) { return table->ledger().IsFull(); };
  const absl::Time until = absl::Now() + kHealTimeout;
  while (absl::Now() < until) {
    const auto waits = std::find_if(trainers.begin(), trainers.end(), [&](const auto& trainer) {
      return trainer.acknowledged <= before[&trainer - trainers.data()];
    });
    if (waits == trainers.end()) return true;
    if (std::all_of(tables_.begin(), tables_.end(), is_full)) return true;
    AwaitChange(waits->progress, waits->progress, kTableLook);
  }
  AddHang();
  return false;
}

void ChaosRun::AddHang() {
  std::string calls =
      absl::StrCat("calls of trainers to the coordinator:\n", cluster_->trainer_proxy().Describe());
  for (int shard = 0; shard < options_.shards; ++shard) {
    absl::StrAppend(&calls, "calls to ", cluster_->NameOf(shard), ":\n",
                    cluster_->data_proxy(shard).Describe());
  }
  AddFinding(absl::StrCat("a trainer gets no update through ", absl::FormatDuration(kHealTimeout),
                          " after the last fault\n", calls, cluster_->LogTails()));
}

void ChaosRun::JudgeTable(std::span<const std::unique_ptr<client::Client>> by_group,
                          const JudgedTable& table) {
  const absl::StatusOr<std::vector<float>> cells = table.ReadCells(by_group);
  if (!cells.ok()) {
    return AddFinding(
        absl::StrCat("table ", table.name(), " cannot be read: ", Message(cells.status())));
  }
  for (const Damage& damage : table.ledger().Check(*cells)) {
    {
      const MutexLock lock(mu_);
      ++(damage.kind == Damage::Kind::kLost ? report_.lost : report_.doubled);
    }
    AddFinding(absl::StrCat("table ", table.name(), ": ", damage.Text()));
  }
}

// Verifies the table like an operator. A process that is still armed may die now: who cannot look
// then looks again.
void ChaosRun::VerifyTable(const JudgedTable& table) {
  const absl::Time until = absl::Now() + kHealTimeout;
  absl::StatusOr<Verification> verified = cluster_->Verify(table.name());
  while (absl::IsUnavailable(verified.status()) && absl::Now() < until) {
    if (!cluster_->AwaitWell(until - absl::Now()).ok()) break;
    verified = cluster_->Verify(table.name());
  }
  if (!verified.ok()) {
    return AddFinding(
        absl::StrCat("embla verify --table ", table.name(), ": ", Message(verified.status())));
  }
  for (const std::string& finding : verified->findings) {
    AddFinding(absl::StrCat("embla verify --table ", table.name(), ": ", finding));
  }
  const MutexLock lock(mu_);
  report_.two_owners += verified->units_without_one_owner;
  report_.named_by_verify += static_cast<int>(verified->findings.size());
}

}  // namespace embla::fault
