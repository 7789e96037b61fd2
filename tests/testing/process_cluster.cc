#include "tests/testing/process_cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::testing {
namespace {

namespace fs = std::filesystem;

std::string BinaryPath(const std::string& name) {
  const char* directory = std::getenv("EMBLA_BIN_DIR");
  return directory == nullptr ? name : absl::StrCat(directory, "/", name);
}

constexpr absl::Duration kLook = absl::Milliseconds(2);  // Between two looks at a state.

// Looks until `ready` holds. Aborted: one of the processes that it depends on ends instead.
absl::Status Await(const std::string& what, const std::vector<const ChildProcess*>& processes,
                   const std::function<bool()>& ready) {
  const absl::Time give_up = absl::Now() + kAwaitMax;
  while (!ready()) {
    if (absl::Now() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("waited in vain for ", what));
    }
    for (const ChildProcess* const process : processes) {
      const bool is_first = process == processes.front();
      if (process->AwaitEnd(is_first ? kLook : absl::ZeroDuration())) {
        return absl::AbortedError(absl::StrCat("a process ended before there was ", what));
      }
    }
  }
  return absl::OkStatus();
}

using Ports = std::map<std::string, std::string>;

absl::StatusOr<Ports> AwaitPortFile(const std::string& path, const ChildProcess& process) {
  EMBLA_RETURN_IF_ERROR(Await(path, {&process}, [&] { return fs::exists(path); }));
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a port file"));
  Ports ports;
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) ports[key] = value.get<std::string>();
  }
  return ports;
}

std::string Tail(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  constexpr std::size_t kTail = 2000;
  return all.size() <= kTail ? all : all.substr(all.size() - kTail);
}

}  // namespace

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  Signal(SIGKILL);
  Wait();
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv,
                                                 const std::string& log_path) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int log = ::open(log_path.c_str(), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
  if (log < 0) return absl::InternalError(absl::StrCat("cannot open ", log_path));
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(log);
  if (pid < 0) return absl::InternalError("fork failed");
  ChildProcess child;
  child.pid_ = pid;
  return child;
}

void ChildProcess::Signal(int signal) const {
  if (!running()) return;
  ::kill(pid_, signal);
  if (signal != SIGSTOP) return;
  siginfo_t stopped;
  ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

int ChildProcess::Wait() {
  EMBLA_CHECK(running());
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::AwaitEnd(absl::Duration timeout) const {
  EMBLA_CHECK(running());
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  EMBLA_CHECK(descriptor >= 0);
  pollfd ended{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int count = ::poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  ::close(descriptor);
  return count == 1;
}

ProcessCluster::ProcessCluster(Options options) : options_(std::move(options)) {
  std::string path = (fs::temp_directory_path() / "embla-test-XXXXXX").string();
  EMBLA_CHECK(::mkdtemp(path.data()) != nullptr);
  directory_ = path;
  nodes_.resize(options_.nodes);
}

ProcessCluster::~ProcessCluster() {
  nodes_.clear();
  coordinator_ = ChildProcess();
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

std::string ProcessCluster::node_name(int node) const { return absl::StrCat("node", node); }

absl::StatusOr<std::unique_ptr<ProcessCluster>> ProcessCluster::Start(const Options& options) {
  std::unique_ptr<ProcessCluster> cluster(new ProcessCluster(options));
  absl::Status status = cluster->StartCoordinator();
  for (int node = 0; status.ok() && node < options.nodes; ++node) {
    status = cluster->StartNode(node);
  }
  if (status.ok()) status = cluster->AwaitLive(options.nodes);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(status.message(), "\n", cluster->LogTails()));
  }
  return cluster;
}

absl::Status ProcessCluster::StartCoordinator() {
  const std::string ports = absl::StrCat(directory_, "/coordinator.json");
  fs::remove(ports);
  std::vector<std::string> argv = {"/usr/bin/env"};
  const std::vector<std::string>& environment = options_.coordinator_environment;
  argv.insert(argv.end(), environment.begin(), environment.end());
  argv.insert(argv.end(),
              {BinaryPath("embla-coordinator"), "--listen", coordinator_address_, "--admin-listen",
               admin_address_, "--metrics-listen", coordinator_metrics_address_, "--state-dir",
               absl::StrCat(directory_, "/state"), "--port-file", ports});
  AddTlsFlags(argv, Role::kCoordinator, "coordinator");
  argv.insert(argv.end(), options_.coordinator_flags.begin(), options_.coordinator_flags.end());
  EMBLA_ASSIGN_OR_RETURN(coordinator_,
                         ChildProcess::Start(argv, absl::StrCat(directory_, "/coordinator.log")));
  EMBLA_ASSIGN_OR_RETURN(Ports found, AwaitPortFile(ports, coordinator_));
  coordinator_address_ = found["listen"];
  admin_address_ = found["admin"];
  coordinator_metrics_address_ = found["metrics"];
  return absl::OkStatus();
}

client::TlsOptions ProcessCluster::Certificate(Role role, const std::string& name) const {
  if (options_.authority == nullptr) return {};
  const TlsFiles files = options_.authority->Issue(role, name);
  return {.certificate = files.certificate, .authorities = files.authorities};
}

void ProcessCluster::AddTlsFlags(std::vector<std::string>& argv, Role role,
                                 const std::string& name) const {
  const client::TlsOptions tls = Certificate(role, name);
  if (tls.certificate.empty()) return;
  argv.insert(argv.end(), {"--tls-cert", tls.certificate, "--tls-ca", tls.authorities});
}

std::string ProcessCluster::data_dir(int node) const {
  return absl::StrCat(directory_, "/", node_name(node), ".data");
}

absl::Status ProcessCluster::StartNode(int node, const std::vector<std::string>& more) {
  const std::string name = node_name(node);
  const std::string ports = absl::StrCat(directory_, "/", name, ".json");
  fs::remove(ports);
  const auto failpoints = options_.failpoints.find(node);
  const bool has_failpoints = failpoints != options_.failpoints.end();
  const std::string environment =
      absl::StrCat("EMBLA_FAILPOINTS=", has_failpoints ? failpoints->second : "");
  const bool is_damaged = has_failpoints && options_.plants_damage;
  std::vector<std::string> argv = {"/usr/bin/env", environment};
  argv.insert(argv.end(), options_.shard_environment.begin(), options_.shard_environment.end());
  argv.insert(argv.end(),
              {BinaryPath(is_damaged ? "embla-shard-damaged" : "embla-shard"), "--name", name,
               "--coordinator", coordinator_address_, "--listen", nodes_[node].address,
               "--metrics-listen", nodes_[node].metrics_address, "--devices",
               absl::StrCat("cpu:", options_.devices_per_node), "--port-file", ports});
  if (options_.journals) {
    argv.insert(argv.end(), {"--data-dir", data_dir(node)});
  } else if (options_.accepts_loss) {
    argv.push_back("--accept-loss");
  }
  if (std::ranges::find(more, "--tls-cert") == more.end()) AddTlsFlags(argv, Role::kNode, name);
  argv.insert(argv.end(), options_.shard_flags.begin(), options_.shard_flags.end());
  argv.insert(argv.end(), more.begin(), more.end());
  EMBLA_ASSIGN_OR_RETURN(nodes_[node].process,
                         ChildProcess::Start(argv, absl::StrCat(directory_, "/", name, ".log")));
  EMBLA_ASSIGN_OR_RETURN(Ports found, AwaitPortFile(ports, nodes_[node].process));
  nodes_[node].address = found["listen"];
  nodes_[node].metrics_address = found["metrics"];
  return absl::OkStatus();
}

absl::Status ProcessCluster::AwaitLive(int nodes) const {
  EMBLA_ASSIGN_OR_RETURN(const auto admin, ConnectAdmin());
  return Await(absl::StrCat(nodes, " live nodes with the current plan"), Running(), [&] {
    const auto status = admin->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
    const auto listed = admin->Call<v1::ListNodesReply>(v1::ListNodesRequest());
    if (!status.ok() || !listed.ok()) return false;
    int ready = 0;
    for (const v1::NodeStatus& node : listed->nodes()) {
      ready += node.live() && node.plan_version() == status->plan_version();
    }
    return ready == nodes;
  });
}

absl::Status ProcessCluster::AwaitPlan() const {
  return AwaitLive(static_cast<int>(
      std::ranges::count_if(nodes_, [](const Node& node) { return node.process.running(); })));
}

std::vector<const ChildProcess*> ProcessCluster::Running() const {
  std::vector<const ChildProcess*> running = {&coordinator_};
  for (const Node& node : nodes_) running.push_back(&node.process);
  std::erase_if(running, [](const ChildProcess* process) { return !process->running(); });
  return running;
}

absl::StatusOr<std::unique_ptr<client::Client>> ProcessCluster::Connect(
    client::ConnectOptions options) const {
  options.coordinator = coordinator_address_;
  const bool is_nobody = options.tls.certificate.empty() && options.tls.token.empty();
  if (is_nobody) options.tls = Certificate(Role::kTrainer, "trainer");
  return client::Client::Connect(std::move(options));
}

absl::StatusOr<std::unique_ptr<client::Admin>> ProcessCluster::ConnectAdmin() const {
  return client::Admin::Connect(admin_address_, kAwaitMax, client::Admin::IfAbsent::kWait,
                                Certificate(Role::kAdmin, "admin"));
}

std::pair<std::string, int> ProcessCluster::Embla(const std::string& arguments) const {
  const client::TlsOptions tls = Certificate(Role::kAdmin, "admin");
  const std::string command =
      absl::StrCat("EMBLA_TLS_CERT=", tls.certificate, " EMBLA_TLS_CA=", tls.authorities, " ",
                   BinaryPath("embla"), " --admin ", admin_address_, " ", arguments, " 2>&1");
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::string printed;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    printed.append(buffer, size);
  }
  const int status = pclose(pipe);
  return {printed, WEXITSTATUS(status)};
}

void ProcessCluster::KillCoordinator() {
  coordinator_.Signal(SIGKILL);
  coordinator_.Wait();
}

void ProcessCluster::KillNode(int node) {
  nodes_[node].process.Signal(SIGKILL);
  nodes_[node].process.Wait();
}

absl::Status ProcessCluster::RestartCoordinator() {
  EMBLA_RETURN_IF_ERROR(StartCoordinator());
  return AwaitLive(options_.nodes);
}

absl::Status ProcessCluster::RestartNode(int node) {
  EMBLA_RETURN_IF_ERROR(StartNode(node));
  return AwaitLive(options_.nodes);
}

int ProcessCluster::AwaitNodeEnd(int node) {
  if (!nodes_[node].process.AwaitEnd(kAwaitMax)) return -1;
  return nodes_[node].process.Wait();
}

int ProcessCluster::StopCoordinator() {
  coordinator_.Signal(SIGTERM);
  return coordinator_.Wait();
}

int ProcessCluster::StopNode(int node) {
  nodes_[node].process.Signal(SIGTERM);
  return nodes_[node].process.Wait();
}

std::string ProcessCluster::LogTails() const {
  std::string text;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    if (entry.path().extension() == ".log") {
      absl::StrAppend(&text, "--- ", entry.path().filename().string(), "\n",
                      Tail(entry.path().string()));
    }
  }
  return text;
}

}  // namespace embla::testing
