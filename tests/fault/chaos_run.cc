#include "tests/fault/chaos_run.h"

#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::fault {
namespace {

constexpr int kStaleRequests = 24;  // Of one fault of the kind.
constexpr absl::Duration kHealTimeout = absl::Seconds(30);
constexpr absl::Duration kPoll = absl::Milliseconds(5);
constexpr std::size_t kFindingsShown = 40;
// So that a run's parts draw different numbers.
constexpr std::uint64_t kJobSeed = 1'000'003;
constexpr std::uint64_t kTrainerSeed = 2'000'003;

LedgerShape ShapeOf(const ChaosOptions& options) {
  LedgerShape shape;
  shape.trainers = options.trainers;
  return shape;
}

}  // namespace

ChaosRun::ChaosRun(const ChaosOptions& options) : options_(options) {}

ChaosRun::~ChaosRun() {
  jobs_.reset();
  trainers_.clear();
}

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
    EMBLA_RETURN_IF_ERROR(admin->DropTable(table->name).status());
  }
  EMBLA_ASSIGN_OR_RETURN(tables_, CreateTables(*admin, ShapeOf(options_), ++tables_made_));
  return absl::OkStatus();
}

ChaosReport ChaosRun::Run() {
  const absl::Status started = StartCluster();
  if (!started.ok()) AddFinding(absl::StrCat("the cluster does not start: ", Message(started)));
  for (int t = 0; started.ok() && t < options_.trainers; ++t) {
    trainers_.push_back(
        std::make_unique<Trainer>(TrainerOptions{.index = t,
                                                 .coordinator = cluster_->trainer_address(),
                                                 .seed = options_.seed + kTrainerSeed},
                                  [this](const std::string& what) { AddFinding(what); }));
  }
  int phase = 0;
  while (started.ok() && RunPhase(phase++) && coverage_.faults() < options_.faults) {
  }
  Say(coverage_.Table());
  std::uint64_t lookups = 0, failed = 0, sessions = 0, timed_out = 0;
  for (const auto& trainer : trainers_) {
    lookups += trainer->lookups();
    failed += trainer->lookups_failed();
    sessions += trainer->sessions();
    timed_out += trainer->connects_timed_out();
  }
  Say(absl::StrCat("units moved ", units_moved_, "; sessions ", sessions, ", connects timed out ",
                   timed_out, "; lookups ", lookups, ", failed ", failed, "; back to work within ",
                   absl::FormatDuration(recovery_max_)));
  const MutexLock lock(mu_);
  report_.faults = coverage_.faults();
  for (const auto& trainer : trainers_) report_.acknowledged += trainer->acknowledged();
  return report_;
}

bool ChaosRun::RunPhase(int phase) {
  const std::uint64_t seed = options_.seed * 1000 + phase;
  const auto lanes = DrawSchedule(
      seed, {.shards = options_.shards,
             .kills_shards = options_.kills_shards,
             .lanes = options_.lanes,
             .faults = std::min(options_.faults_per_phase, options_.faults - coverage_.faults())});
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const Fault& fault : lanes[lane]) {
      Say(absl::StrCat("phase ", phase, " lane ", lane, ": ", fault.Text()));
    }
  }
  std::vector<std::string> names;
  for (const auto& table : tables_) names.push_back(table->name);
  cluster_->Arm();
  jobs_ = std::make_unique<JobDriver>(*cluster_, names, seed + kJobSeed);
  for (const auto& trainer : trainers_) trainer->Train(&tables_);
  std::vector<std::thread> threads;
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
  const bool is_process = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kStop;
  if (is_process && fault.victim == kCoordinator) return "coordinator";
  if (fault.kind == FaultKind::kStaleClient) return "all nodes";
  if (!is_process && fault.link == LinkKind::kTrainers) return "trainers";
  return state.RoleOf(fault.victim);
}

void ChaosRun::Inject(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kStop: {
      const ChaosCluster::Turn turn(*cluster_, fault.victim);
      cluster_->AwaitRunning(fault.victim);
      const MoveState state = jobs_->Now();
      coverage_.Add(NameOf(fault.kind), state.what, RoleOf(fault, state));
      if (options_.is_verbose) Say(absl::StrCat("  now: ", fault.Text()));
      if (fault.kind == FaultKind::kKill) {
        cluster_->Kill(fault.victim, fault.length, fault.failpoint);
        return cluster_->AwaitRunning(fault.victim);
      }
      cluster_->Stop(fault.victim);
      absl::SleepFor(fault.length);
      return cluster_->Continue(fault.victim);
    }
    default: {
      const MoveState state = jobs_->Now();
      coverage_.Add(NameOf(fault.kind), state.what, RoleOf(fault, state));
      if (options_.is_verbose) Say(absl::StrCat("  now: ", fault.Text()));
      fault.kind == FaultKind::kStaleClient ? SendStale(fault) : InjectOnLink(fault);
    }
  }
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
  const absl::Status finished = jobs_->Finish();
  if (!finished.ok()) {
    AddFinding(absl::StrCat(Message(finished), "\n", cluster_->LogTails()));
    return false;
  }
  for (const auto& trainer : trainers_) trainer->Pause();
  // Past the proxies, and with a plan of its own.
  auto client = client::Client::Connect(
      {.coordinator = cluster_->coordinator_address(), .timeout = kHealTimeout});
  if (!client.ok()) {
    AddFinding(absl::StrCat("nobody can connect: ", Message(client.status())));
    return false;
  }
  bool is_full = false;
  for (const auto& table : tables_) {
    VerifyTable(*table);
    JudgeTable(**client, *table);
    is_full = is_full || table->ledger.IsFull();
  }
  if (!is_full) return true;
  const absl::Status replaced = ReplaceTables();
  if (!replaced.ok()) AddFinding(absl::StrCat("new tables: ", Message(replaced)));
  return replaced.ok();
}

// Whoever waits for a dead node or a lost message gets on by itself.
bool ChaosRun::AwaitProgress() {
  std::vector<std::uint64_t> before;
  for (const auto& trainer : trainers_) before.push_back(trainer->acknowledged());
  const absl::Time until = absl::Now() + kHealTimeout;
  while (absl::Now() < until) {
    bool all = tables_.front()->ledger.IsFull() || tables_.back()->ledger.IsFull();
    for (std::size_t t = 0; !all && t < trainers_.size(); ++t) {
      if (trainers_[t]->acknowledged() <= before[t]) break;
      all = t + 1 == trainers_.size();
    }
    if (all) return true;
    absl::SleepFor(kPoll);
  }
  std::string hangs;
  for (const auto& trainer : trainers_) absl::StrAppend(&hangs, trainer->Pending(), "\n");
  absl::StrAppend(&hangs, "calls of trainers to the coordinator:\n",
                  cluster_->trainer_proxy().Describe());
  for (int shard = 0; shard < options_.shards; ++shard) {
    absl::StrAppend(&hangs, "calls to ", cluster_->NameOf(shard), ":\n",
                    cluster_->data_proxy(shard).Describe());
  }
  AddFinding(absl::StrCat("a trainer gets no update through ", absl::FormatDuration(kHealTimeout),
                          " after the last fault\n", hangs, cluster_->LogTails()));
  return false;
}

void ChaosRun::JudgeTable(client::Client& client, const JudgedTable& table) {
  const absl::StatusOr<std::vector<float>> weights = ReadTable(client, table);
  if (!weights.ok()) {
    return AddFinding(
        absl::StrCat("table ", table.name, " cannot be read: ", Message(weights.status())));
  }
  for (const Damage& damage : table.ledger.Check(*weights)) {
    {
      const MutexLock lock(mu_);
      ++(damage.kind == Damage::Kind::kLost ? report_.lost : report_.doubled);
    }
    AddFinding(absl::StrCat("table ", table.name, ": ", damage.Text()));
  }
}

// As operators do it.
void ChaosRun::VerifyTable(const JudgedTable& table) {
  const absl::StatusOr<Verification> verified = cluster_->Verify(table.name);
  if (!verified.ok()) {
    return AddFinding(
        absl::StrCat("embla verify --table ", table.name, ": ", Message(verified.status())));
  }
  for (const std::string& finding : verified->findings) {
    AddFinding(absl::StrCat("embla verify --table ", table.name, ": ", finding));
  }
  const MutexLock lock(mu_);
  report_.two_owners += verified->units_without_one_owner;
}

}  // namespace embla::fault
