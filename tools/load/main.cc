// embla-bench: measures lookups and updates of a cluster against what transport and memory allow.
#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/clock.h"
#include "core/base/heap.h"
#include "core/base/named_option.h"
#include "core/base/program_flags.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/base/tls_flags.h"
#include "core/base/usage_error.h"
#include "core/metrics/program_metrics.h"
#include "kernels/targets.h"
#include "tools/load/bench_report.h"
#include "tools/load/bench_run.h"
#include "tools/load/local_cluster.h"
#include "tools/load/suite.h"

namespace embla::load {
namespace {

// Exit codes: 0 done, 1 the run failed, 2 the options are wrong.
constexpr int kFailed = 1;
constexpr int kWrongOptions = 2;
constexpr absl::Duration kJoinMax = absl::Seconds(30);

struct Settings {
  std::string coordinator;  // Empty: a local cluster.
  std::string admin = "127.0.0.1:7071";
  std::string local = "1x1";
  LocalClusterOptions cluster;
  std::string suite;
  Case load;
  RunSettings run;
  client::Transport transport = client::Transport::kAuto;
  client::TlsOptions tls;  // With --coordinator.
  double timeout_seconds = 30.0;
  bool no_combine = false;
  bool no_ceilings = false;
  std::string peer;
  std::string output = "table";
  std::string metrics_listen;
  std::string kernels;  // Empty: the best instruction set.
};

void AddClusterOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Cluster");
  auto* coordinator = group->add_option("--coordinator", settings.coordinator,
                                        "Drive this cluster instead of a local one");
  group->add_option("--admin", settings.admin)->capture_default_str()->needs(coordinator);
  AddTlsFlags(*group, settings.tls);
  AddTokenFlag(*group, settings.tls);
  group->add_option("--local", settings.local, "NODESxDEVICES processes on loopback")
      ->capture_default_str()
      ->excludes(coordinator);
  group
      ->add_option("--threads-per-device", settings.cluster.threads_per_device,
                   "Of the local cluster")
      ->capture_default_str();
  group->add_option("--metrics-listen", settings.metrics_listen,
                    "Where to serve the clients' /metrics: host:port; default: nowhere");
  group->add_option("--timeout", settings.timeout_seconds, "Seconds per call")
      ->capture_default_str();
  AddNamedOption(*group, "--transport", settings.transport,
                 {{"auto", client::Transport::kAuto},
                  {"stream", client::Transport::kStream},
                  {"tcp", client::Transport::kTcp},
                  {"unary", client::Transport::kUnary}},
                 "How requests travel");
}

void AddTableOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Tables");
  TableSetup& tables = settings.run.tables;
  group->add_option("--rows", tables.rows, "Per table")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->capture_default_str();
  group->add_option("--dim", settings.load.dim)->capture_default_str();
  group->add_option("--tables", settings.load.tables, "In every request")->capture_default_str();
  group->add_option("--dtype", tables.dtype, "fp32, fp16 or bf16")->capture_default_str();
  group->add_option("--optimizer", tables.optimizer)->capture_default_str();
  group->add_option("--sharding", tables.sharding)->capture_default_str();
  group->add_option("--prefix", tables.prefix, "Of table names")->capture_default_str();
}

void AddLoadOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Load");
  Case& load = settings.load;
  group->add_option("--suite", settings.suite, "service: the cases of docs/benchmarks.md")
      ->check(CLI::IsMember({"service"}));
  group
      ->add_option("--distribution", settings.run.distribution,
                   "Of ids: uniform, zipf:S or reuse:FILE")
      ->capture_default_str();
  group->add_option("--ids", load.ids, "Per table and request")->capture_default_str();
  group->add_option("--bag", load.bag, "Ids per bag; above 1, bags are summed")
      ->capture_default_str();
  group->add_flag("--pooled", load.pooled, "Bags are summed even where they have one id");
  group->add_option("--update-share", load.update_share, "Of the requests, 0..1")
      ->capture_default_str();
  AddNamedOption(*group, "--wire", load.wire,
                 {{"fp32", client::WireFormat::kFp32},
                  {"fp16", client::WireFormat::kFp16},
                  {"bf16", client::WireFormat::kBf16},
                  {"int8", client::WireFormat::kInt8}},
                 "Of rows and gradients");
  group->add_flag("--no-combine", settings.no_combine, "Send duplicate ids as they are");
  group->add_option("--clients", load.clients)->capture_default_str();
  group->add_option("--in-flight", load.in_flight, "Per client")->capture_default_str();
  group->add_option("--requests", load.requests, "Per round")->capture_default_str();
  group->add_option("--rounds", settings.run.rounds)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  group->add_option("--seed", settings.run.seed)->capture_default_str();
  group->add_option("--kernels", settings.kernels,
                    "Instruction set of client and local cluster, as AVX2; default: the best");
  group->add_flag("--no-ceilings", settings.no_ceilings, "Do not measure the transport alone");
  group->add_option("--peer", settings.peer, "embla-ceiling-peer (default: beside this program)");
  group->add_option("-o,--output", settings.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

absl::Status ParseLocal(const std::string& text, LocalClusterOptions& cluster) {
  const char* end = text.data() + text.size();
  const auto nodes = std::from_chars(text.data(), end, cluster.nodes);
  const bool has_x = nodes.ec == std::errc() && nodes.ptr != end && *nodes.ptr == 'x';
  const auto devices =
      has_x ? std::from_chars(nodes.ptr + 1, end, cluster.devices_per_node) : nodes;
  if (has_x && devices.ec == std::errc() && devices.ptr == end && cluster.nodes >= 1 &&
      cluster.devices_per_node >= 1 && cluster.nodes <= 64 && cluster.devices_per_node <= 64) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("--local is '" + text + "', must be NODESxDEVICES, each 1..64");
}

absl::Status AwaitNodes(client::Admin& admin, std::uint32_t nodes) {
  const absl::Time deadline = Clock::Real().Now() + kJoinMax;
  while (Clock::Real().Now() < deadline) {
    const auto status = admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
    if (status.ok() && status->nodes_live() >= nodes) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::DeadlineExceededError("the nodes of the local cluster did not become live");
}

absl::StatusOr<std::vector<std::unique_ptr<client::Client>>> ConnectAll(const Settings& settings,
                                                                        int count,
                                                                        Metrics& metrics) {
  std::vector<std::unique_ptr<client::Client>> clients;
  for (int i = 0; i < count; ++i) {
    client::ConnectOptions options;
    options.coordinator = settings.coordinator;
    options.timeout = absl::Seconds(settings.timeout_seconds);
    options.transport = settings.transport;
    options.tls = settings.tls;
    options.metrics = &metrics;
    EMBLA_ASSIGN_OR_RETURN(auto client, client::Client::Connect(options));
    clients.push_back(std::move(client));
  }
  return clients;
}

absl::StatusOr<std::unique_ptr<TransportCeilings>> StartCeilings(const Settings& settings) {
  if (settings.no_ceilings) return nullptr;
  std::string peer = settings.peer;
  if (peer.empty()) {
    peer = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "embla-ceiling-peer";
  }
  if (!std::filesystem::exists(peer)) {
    return absl::NotFoundError(peer + " does not exist: name it with --peer, or --no-ceilings");
  }
  return TransportCeilings::Start(peer);
}

absl::StatusOr<std::unique_ptr<kernels::TargetOverride>> ChooseKernels(const std::string& name) {
  if (name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const kernels::Target& target : kernels::SupportedTargets()) {
    if (target.name == name) return std::make_unique<kernels::TargetOverride>(target);
    names.push_back(target.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kernels is '", name, "'; this machine runs ", absl::StrJoin(names, ", ")));
}

absl::Status Run(Settings& settings) {
  // Before the local cluster's processes are forked: they inherit it.
  EMBLA_ASSIGN_OR_RETURN(const auto chosen, ChooseKernels(settings.kernels));
  // Like embla-shard; the local cluster's processes inherit the settings.
  KeepFewArenas();
  if (const absl::Status kept = KeepHeap(kKeptHeapBytes); !kept.ok()) {
    std::cerr << "embla-bench: " << kept.message() << "\n";
  }
  std::unique_ptr<LocalCluster> local;
  if (settings.coordinator.empty()) {
    // Before anything here starts a thread.
    EMBLA_ASSIGN_OR_RETURN(local, LocalCluster::Start(settings.cluster));
    settings.coordinator = local->coordinator_address();
    settings.admin = local->admin_address();
  }
  EMBLA_ASSIGN_OR_RETURN(const auto ceilings, StartCeilings(settings));
  EMBLA_ASSIGN_OR_RETURN(
      const auto admin,
      client::Admin::Connect(settings.admin, absl::Seconds(settings.timeout_seconds),
                             client::Admin::IfAbsent::kWait, settings.tls));
  if (local) EMBLA_RETURN_IF_ERROR(AwaitNodes(*admin, settings.cluster.nodes));
  const std::vector<Case> cases =
      settings.suite.empty() ? std::vector<Case>{settings.load} : ServiceSuite();
  EMBLA_ASSIGN_OR_RETURN(const auto metrics,
                         ProgramMetrics::Start(settings.metrics_listen, "embla-bench"));
  if (!metrics->address().empty()) std::cerr << "metrics: " << metrics->address() << "\n";
  EMBLA_ASSIGN_OR_RETURN(const auto clients,
                         ConnectAll(settings, settings.load.clients, metrics->metrics()));
  RunEnvironment environment{*admin, {}, {}, ceilings.get(), metrics->metrics(), std::cerr};
  for (const auto& client : clients) environment.clients.push_back(client.get());
  if (local) {
    const auto processes = local->shard_processes();
    environment.server_processes.assign(processes.begin(), processes.end());
  }
  EMBLA_ASSIGN_OR_RETURN(const auto results, RunCases(cases, settings.run, environment));
  if (settings.output == "json") {
    std::cout << ResultsToJson(results, settings.run) << "\n";
  } else {
    PrintResults(results, std::cout);
  }
  return absl::OkStatus();
}

int Fail(const absl::Status& status, int code) {
  std::cerr << "embla-bench: " << status.ToString() << "\n";
  return code;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures lookups and updates against the ceilings of transport and memory",
               "embla-bench");
  AddProgramFlags<CLI::CallForVersion>(app);
  Settings settings;
  AddClusterOptions(app, settings);
  AddTableOptions(app, settings);
  AddLoadOptions(app, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitAfterParse(app, error);
  }
  settings.load.combine_duplicates = !settings.no_combine;
  settings.load.name = settings.load.only_lookups()   ? "lookup"
                       : settings.load.only_updates() ? "update"
                                                      : "mix";
  for (const absl::Status& status :
       {settings.load.Validate(), ParseLocal(settings.local, settings.cluster),
        IdDistribution::Parse(settings.run.distribution, settings.run.tables.rows).status()}) {
    if (!status.ok()) return Fail(status, kWrongOptions);
  }
  const absl::Status status = Run(settings);
  return status.ok() ? 0 : Fail(status, kFailed);
}

}  // namespace
}  // namespace embla::load

int main(int argc, char** argv) { return embla::load::Main(argc, argv); }
