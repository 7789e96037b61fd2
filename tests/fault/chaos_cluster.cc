#include "tests/fault/chaos_cluster.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "nlohmann/json.hpp"

namespace embla::fault {
namespace {

namespace fs = std::filesystem;

constexpr int kFailpointExitCode = 86;                   // core/base/failpoint.cc
constexpr absl::Duration kLook = absl::Milliseconds(5);  // Between two looks at processes.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);

std::string PathOf(const std::string& name) {
  const char* const directory = std::getenv("EMBLA_BIN_DIR");
  return directory == nullptr ? name : absl::StrCat(directory, "/", name);
}

std::string Tail(const fs::path& path, std::size_t bytes) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() <= bytes ? all : all.substr(all.size() - bytes);
}

}  // namespace

ChaosCluster::ChaosCluster(const ChaosClusterOptions& options, OnFailpoint on_failpoint,
                           OnUnplannedEnd on_unplanned_end)
    : options_(options),
      on_failpoint_(std::move(on_failpoint)),
      on_unplanned_end_(std::move(on_unplanned_end)),
      replayer_(options.seed),
      damage_read_(options.trainers),
      processes_(options.shards + options.trainers + 1) {}

ChaosCluster::~ChaosCluster() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (watcher_.joinable()) watcher_.join();
  const MutexLock lock(mu_);
  processes_.clear();
}

std::string NameOfVictim(int victim, int shards) {
  if (victim == kCoordinator) return "coordinator";
  return victim < shards ? absl::StrCat("node", victim) : absl::StrCat("trainer", victim - shards);
}

int ChaosCluster::VictimOf(const std::string& node_name) const {
  for (int shard = 0; shard < shards(); ++shard) {
    if (NameOf(shard) == node_name) return shard;
  }
  return -2;
}

std::string ChaosCluster::FileOf(int victim, const char* ending) const {
  return absl::StrCat(options_.directory, "/", NameOf(victim), ending);
}

absl::StatusOr<std::unique_ptr<ChaosCluster>> ChaosCluster::Start(
    const ChaosClusterOptions& options, OnFailpoint on_failpoint, OnUnplannedEnd on_unplanned_end) {
  std::unique_ptr<ChaosCluster> cluster(
      new ChaosCluster(options, std::move(on_failpoint), std::move(on_unplanned_end)));
  EMBLA_ASSIGN_OR_RETURN(cluster->board_,
                         TrainerBoard::Open(BoardPath(options.directory), options.trainers));
  EMBLA_RETURN_IF_ERROR(cluster->StartProxies());
  EMBLA_RETURN_IF_ERROR(cluster->StartProcesses());
  cluster->watcher_ = std::thread([&c = *cluster] { c.Watch(); });
  EMBLA_RETURN_IF_ERROR(cluster->AwaitWell(kStartTimeout));
  return cluster;
}

absl::Status ChaosCluster::StartProcesses() {
  for (int victim = kCoordinator; victim < victims_end(); ++victim) {
    const bool is_shard = victim != kCoordinator && !IsTrainer(victim);
    EMBLA_RETURN_IF_ERROR(Launch(victim, is_shard ? options_.first_failpoints : ""));
    // The others may start all at once; they need the coordinator's address first.
    if (victim == kCoordinator) EMBLA_RETURN_IF_ERROR(AwaitPorts(victim));
  }
  for (int shard = 0; shard < options_.shards; ++shard) EMBLA_RETURN_IF_ERROR(AwaitPorts(shard));
  return absl::OkStatus();
}

absl::Status ChaosCluster::StartProxies() {
  std::uint64_t seed = options_.seed;
  const auto start = [&seed](FaultProxy::Witness witness) {
    return FaultProxy::Start(++seed, std::move(witness));
  };
  for (int shard = 0; shard < options_.shards; ++shard) {
    EMBLA_ASSIGN_OR_RETURN(
        data_proxies_.emplace_back(),
        start([this, shard](const std::string& method, const grpc::ByteBuffer& request) {
          replayer_.Witness({shard, method, request});
        }));
    EMBLA_ASSIGN_OR_RETURN(link_proxies_.emplace_back(), start({}));
  }
  EMBLA_ASSIGN_OR_RETURN(trainer_proxy_, start({}));
  return absl::OkStatus();
}

std::vector<FaultProxy*> ChaosCluster::proxies() {
  std::vector<FaultProxy*> all = {trainer_proxy_.get()};
  for (const auto& proxy : data_proxies_) all.push_back(proxy.get());
  for (const auto& proxy : link_proxies_) all.push_back(proxy.get());
  return all;
}

std::vector<std::string> ChaosCluster::ArgumentsOf(int victim) {
  const Process& process = ProcessOf(victim);
  // A write to a full disk shall fail, and not kill.
  std::vector<std::string> argv = {"/usr/bin/env", "--ignore-signal=XFSZ"};
  if (!process.failpoint.empty()) {
    argv.push_back(absl::StrCat("EMBLA_FAILPOINTS=", process.failpoint));
  }
  const auto add = [&argv](std::initializer_list<std::string> more) {
    argv.insert(argv.end(), more);
  };
  if (IsTrainer(victim)) {
    add({PathOf("chaos-trainer"), "--index", absl::StrCat(victim - shards()), "--trainers",
         absl::StrCat(options_.trainers), "--coordinator", trainer_address(), "--seed",
         absl::StrCat(options_.seed), "--directory", options_.directory});
    return argv;
  }
  if (victim == kCoordinator) {
    add({PathOf("embla-coordinator"), "--listen", process.listen, "--admin-listen", process.admin,
         "--state-dir", FileOf(victim, ".state"), "--heartbeat-ms", "200", "--dead-after-ms",
         "1500"});
  } else {
    // Only the program with planted damage names it.
    const char* const shard =
        options_.first_failpoints.empty() ? "embla-shard" : "embla-shard-damaged";
    add({PathOf(shard), "--name", NameOf(victim), "--coordinator", link_proxies_[victim]->address(),
         "--listen", process.listen, "--advertise", data_proxies_[victim]->address(), "--devices",
         absl::StrCat("cpu:", options_.devices_per_shard), "--memory-per-device", "256MiB",
         "--threads-per-device", "1"});
    if (options_.has_data_dirs) {
      add({"--data-dir", FileOf(victim, ".data"), "--snapshot-after", "1MiB"});
    } else {
      add({"--accept-loss"});
    }
    if (!HasDataSockets(victim)) add({"--no-data-sockets"});
    argv.insert(argv.end(), options_.shard_flags.begin(), options_.shard_flags.end());
  }
  add({"--metrics-listen", "", "--port-file", FileOf(victim, ".json")});
  return argv;
}

absl::Status ChaosCluster::Launch(int victim, const std::string& failpoint) {
  const MutexLock lock(mu_);
  Process& process = ProcessOf(victim);
  process.failpoint = is_disarmed_ ? "" : failpoint;
  process.start_at = absl::InfiniteFuture();
  fs::remove(FileOf(victim, ".json"));
  EMBLA_ASSIGN_OR_RETURN(process.child,
                         testing::ChildProcess::Start(ArgumentsOf(victim), FileOf(victim, ".log")));
  changed_.NotifyAll();
  return absl::OkStatus();
}

// Ports never change once they are known.
absl::Status ChaosCluster::AwaitPorts(int victim) {
  const absl::Time until = absl::Now() + kStartTimeout;
  while (!fs::exists(FileOf(victim, ".json"))) {
    if (absl::Now() > until) {
      return absl::DeadlineExceededError(
          absl::StrCat(NameOf(victim), " does not start: ", Tail(FileOf(victim, ".log"), 2000)));
    }
    AwaitNextLook();
  }
  std::ifstream file(FileOf(victim, ".json"));
  const nlohmann::json ports = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object()) return absl::DataLossError("not a port file");
  const MutexLock lock(mu_);
  Process& process = ProcessOf(victim);
  process.listen = ports.value("listen", "");
  process.admin = ports.value("admin", "");
  if (victim == kCoordinator) {
    trainer_proxy_->SetUpstream(process.listen);
    for (const auto& proxy : link_proxies_) proxy->SetUpstream(process.listen);
  } else {
    data_proxies_[victim]->SetUpstream(process.listen);
  }
  return absl::OkStatus();
}

ChaosCluster::Turn::Turn(ChaosCluster& cluster, int victim) : cluster_(cluster), victim_(victim) {
  const MutexLock lock(cluster_.mu_);
  while (cluster_.ProcessOf(victim_).in_turn) cluster_.turn_over_.Wait(cluster_.mu_);
  cluster_.ProcessOf(victim_).in_turn = true;
}

ChaosCluster::Turn::~Turn() {
  const MutexLock lock(cluster_.mu_);
  cluster_.ProcessOf(victim_).in_turn = false;
  cluster_.turn_over_.NotifyAll();
}

void ChaosCluster::Kill(int victim, absl::Duration down, const std::string& failpoint) {
  const MutexLock lock(mu_);
  Process& process = ProcessOf(victim);
  if (process.child.running()) {
    process.child.Signal(SIGKILL);
    process.child.Wait();
  }
  process.start_at = absl::Now() + down;
  process.next_failpoint = failpoint;
  process.had_served.reset();
  changed_.NotifyAll();
}

bool ChaosCluster::Await(const std::function<bool()>& condition, absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > until) return false;
    AwaitNextLook();
  }
  return true;
}

void ChaosCluster::Lose(int shard) {
  Kill(shard, absl::InfiniteDuration(), "");
  fs::remove_all(FileOf(shard, ".data"));
}

std::optional<bool> ChaosCluster::AwaitFailpoint(int victim, absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  const MutexLock lock(mu_);
  const Process& process = ProcessOf(victim);
  const auto is_armed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return process.child.running() ? !process.failpoint.empty() : !process.next_failpoint.empty();
  };
  while (is_armed() && absl::Now() < until) changed_.WaitFor(mu_, until - absl::Now());
  return process.had_served;
}

void ChaosCluster::AwaitRunning(int victim) {
  const absl::Time until = absl::Now() + kStartTimeout;
  const MutexLock lock(mu_);
  while (!ProcessOf(victim).child.running() && absl::Now() < until) {
    changed_.WaitFor(mu_, until - absl::Now());
  }
}

void ChaosCluster::Stop(int victim) {
  const MutexLock lock(mu_);
  ProcessOf(victim).child.Signal(SIGSTOP);
}

void ChaosCluster::Continue(int victim) {
  const MutexLock lock(mu_);
  ProcessOf(victim).child.Signal(SIGCONT);
}

void ChaosCluster::FillDisk(int shard, int room_bytes) {
  rlim_t end = room_bytes;
  for (const fs::directory_entry& file : fs::directory_iterator(FileOf(shard, ".data"))) {
    // The node removes files meanwhile.
    std::error_code gone;
    const std::uintmax_t size = file.is_regular_file(gone) ? file.file_size(gone) : 0;
    if (!gone) end = std::max<rlim_t>(end, size + room_bytes);
  }
  const MutexLock lock(mu_);
  const Process& process = ProcessOf(shard);
  const rlimit limit{.rlim_cur = end, .rlim_max = RLIM_INFINITY};
  if (process.child.running()) ::prlimit(process.child.pid(), RLIMIT_FSIZE, &limit, nullptr);
}

void ChaosCluster::Disarm() {
  {
    const MutexLock lock(mu_);
    is_disarmed_ = true;
    if (ProcessOf(kCoordinator).failpoint.empty()) return;
  }
  Kill(kCoordinator, absl::ZeroDuration(), "");
}

void ChaosCluster::Arm() {
  const MutexLock lock(mu_);
  is_disarmed_ = false;
}

void ChaosCluster::Watch() {
  while (true) {
    {
      const MutexLock lock(mu_);
      if (stopping_) return;
    }
    for (int victim = kCoordinator; victim < victims_end(); ++victim) LookAt(victim);
    AwaitNextLook();
  }
}

void ChaosCluster::AwaitNextLook() {
  const MutexLock lock(mu_);
  if (!stopping_) changed_.WaitFor(mu_, kLook);
}

void ChaosCluster::LookAt(int victim) {
  std::string failpoint;
  std::optional<int> code;  // Exit code.
  {
    const MutexLock lock(mu_);
    Process& process = ProcessOf(victim);
    if (process.child.running()) {
      if (!process.child.AwaitEnd(absl::ZeroDuration())) return;
      code = process.child.Wait();
      failpoint = std::exchange(process.failpoint, "");
      process.start_at = absl::Now();
      process.next_failpoint = "";
      const bool is_planned = *code == kFailpointExitCode && !failpoint.empty();
      if (is_planned) process.had_served = fs::exists(FileOf(victim, ".json"));
      changed_.NotifyAll();
    } else if (absl::Now() < process.start_at) {
      return;
    } else {
      failpoint = process.next_failpoint;
    }
  }
  if (!code.has_value()) {
    const absl::Status started = Launch(victim, failpoint);
    if (!started.ok()) on_unplanned_end_(Message(started));
  } else if (*code == kFailpointExitCode && !failpoint.empty()) {
    on_failpoint_(victim, failpoint);
  } else {
    on_unplanned_end_(absl::StrCat(NameOf(victim), " ended with code ", *code, ":\n",
                                   Tail(FileOf(victim, ".log"), 3000)));
  }
}

std::string ChaosCluster::coordinator_address() const {
  const MutexLock lock(mu_);
  return processes_.front().listen;
}

std::string ChaosCluster::admin_address() const {
  const MutexLock lock(mu_);
  return processes_.front().admin;
}

absl::StatusOr<std::unique_ptr<client::Admin>> ChaosCluster::ConnectAdmin() const {
  return client::Admin::Connect(admin_address(), absl::Seconds(5));
}

absl::Status ChaosCluster::AwaitWell(absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<client::Admin> admin, ConnectAdmin());
  std::string missing;
  while (absl::Now() < until) {
    const auto status = admin->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
    const auto nodes = admin->Call<v1::ListNodesReply>(v1::ListNodesRequest());
    if (status.ok() && nodes.ok()) {
      int ready = 0;
      missing.clear();
      for (const v1::NodeStatus& node : nodes->nodes()) {
        if (node.live() && node.plan_version() == status->plan_version()) {
          ++ready;
        } else {
          absl::StrAppend(&missing, node.node_json(), " ");
        }
      }
      if (ready == shards()) return absl::OkStatus();
    } else {
      missing = nodes.status().ToString();
    }
    AwaitNextLook();
  }
  return absl::DeadlineExceededError(absl::StrCat("not well after ", absl::FormatDuration(timeout),
                                                  ": ", missing, "\n", LogTails()));
}

absl::StatusOr<Verification> ChaosCluster::Verify(const std::string& table) const {
  const std::string output = absl::StrCat(options_.directory, "/verify.json");
  fs::remove(output);
  EMBLA_ASSIGN_OR_RETURN(
      testing::ChildProcess child,
      testing::ChildProcess::Start(
          {PathOf("embla"), "verify", "--admin", admin_address(), "--table", table, "-o", "json"},
          output));
  const int code = child.Wait();
  // The output has the findings, and a second document with the error behind them.
  const std::string text = Tail(output, std::size_t{64} << 20);
  const std::size_t end = text.find("\n}");
  const nlohmann::json json =
      nlohmann::json::parse(end == std::string::npos ? text : text.substr(0, end + 2), nullptr,
                            /*allow_exceptions=*/false);
  if (!json.contains("findings")) return absl::UnavailableError(text);
  Verification verification;
  verification.units_without_one_owner = json.value("units_without_one_owner", 0);
  for (const nlohmann::json& finding : json["findings"]) {
    verification.findings.push_back(
        absl::StrCat(finding.value("what", ""), ": ", finding.value("remedy", "")));
  }
  if (code == 0 || !verification.findings.empty()) return verification;
  return absl::UnknownError(absl::StrCat("exit code ", code, ": ", text));
}

std::string ChaosCluster::LogTails() const {
  std::string text;
  for (int victim = kCoordinator; victim < victims_end(); ++victim) {
    absl::StrAppend(&text, "--- ", NameOf(victim), "\n", Tail(FileOf(victim, ".log"), 1500));
  }
  return text;
}

std::vector<std::string> ChaosCluster::TakeDamage() {
  std::vector<std::string> lines;
  for (int trainer = 0; trainer < options_.trainers; ++trainer) {
    std::ifstream log(FileOf(shards() + trainer, ".log"));
    log.seekg(damage_read_[trainer]);
    std::string line;
    while (std::getline(log, line) && !log.eof()) {
      damage_read_[trainer] += static_cast<std::streamoff>(line.size()) + 1;
      if (line.starts_with("DAMAGE ")) lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace embla::fault
