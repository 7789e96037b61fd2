#include "tools/embla/doctor_cmd.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "server/etcd/etcd_address.h"
#include "tools/embla/doctor_certificates.h"
#include "tools/embla/doctor_cluster.h"
#include "tools/embla/invocation.h"

namespace embla::cli {
namespace {

namespace fs = std::filesystem;

// The packages' units state these directories beside the files.
constexpr const char* kConfigs = "/etc/embla/";
constexpr const char* kNodes = "/var/lib/embla/nodes";
constexpr const char* kCoordinator = "/var/lib/embla/coordinator";

void LoadServer(const ThisMachine& machine, const std::string& stated, bool is_coordinator,
                const ReadConfig& read, std::vector<ServerConfig>& servers, Report& report) {
  std::error_code ignored;
  const std::string usual =
      absl::StrCat(machine.root, kConfigs, is_coordinator ? "coordinator.conf" : "shard.conf");
  if (stated.empty() && !fs::exists(usual, ignored)) return;
  auto server = LoadServerConfig(stated.empty() ? usual : stated, is_coordinator, read, report);
  if (server.has_value()) servers.push_back(*std::move(server));
}

// The directories that were named, or that configurations name, or that the packages have.
std::vector<std::string> DirectoriesOf(const ThisMachine& machine, const DoctorFlags& flags,
                                       const std::vector<ServerConfig>& servers) {
  std::vector<std::string> found = flags.directories;
  for (const ServerConfig& server : servers) {
    const std::string path = server.is_coordinator ? server.State() : server.Value("data-dir");
    if (!path.empty() && !IsEtcdAddress(path)) found.push_back(path);
  }
  if (!flags.directories.empty()) return found;
  std::error_code ignored;
  if (fs::exists(machine.root + kCoordinator, ignored)) {
    found.push_back(machine.root + kCoordinator);
  }
  for (const auto& node : fs::directory_iterator(machine.root + kNodes, ignored)) {
    found.push_back(node.path().string());
  }
  return found;
}

void ExamineCluster(const Invocation& in, Report& report) {
  const std::vector<std::string> addresses = SplitList(in.admin_address);
  for (const std::string& address : addresses) {
    if (addresses.size() == 1) break;
    const auto admin = client::Admin::Connect(address, absl::Seconds(in.timeout_seconds),
                                              client::Admin::IfAbsent::kFail, in.tls);
    if (!admin.ok()) report.Add("coordinator-member", address, Message(admin.status()));
  }
  const absl::Status asked = in.WithAdmin([&](client::Admin& admin) -> absl::Status {
    auto facts = ClusterFacts::Ask(admin);
    if (!facts.ok()) return facts.status();
    facts->has_tls = !in.tls.certificate.empty() || !in.tls.token.empty();
    facts->admin_address = in.admin_address;
    CheckCluster(*facts, report);
    return absl::OkStatus();
  });
  if (!asked.ok()) {
    report.Add("coordinator-unreachable", in.admin_address,
               absl::StrCat(absl::StatusCodeToString(asked.code()), ": ", asked.message()));
  }
}

absl::Status DoctorVerb(const Invocation& in, const DoctorFlags& flags) {
  if (flags.lists_checks) {
    ShowChecks(in.output());
    return absl::OkStatus();
  }
  if (flags.machine_only && flags.cluster_only) {
    return absl::InvalidArgumentError("--machine and --cluster: one leaves the other out");
  }
  Report report;
  if (!flags.cluster_only) {
    ExamineMachine(ThisMachine::Read(), flags, in.read_config, in.tls, in.admin_address, report);
  }
  if (!flags.machine_only) ExamineCluster(in, report);
  report.Show(in.output());
  return Verdict(report, flags.is_strict);
}

}  // namespace

std::vector<Verb> DoctorVerbs() {
  const auto flags = std::make_shared<DoctorFlags>();
  return {{.name = "doctor",
           .help = "look for usual mistakes, on this machine and in the cluster",
           .arguments = {{"--machine", "leave the cluster out", &flags->machine_only, false},
                         {"--cluster", "leave this machine out", &flags->cluster_only, false},
                         {"--coordinator-config",
                          "the coordinator's --config; default "
                          "/etc/embla/coordinator.conf, if it is there",
                          &flags->coordinator_config, false},
                         {"--shard-config",
                          "a shard server's --config; default /etc/embla/shard.conf, if it is "
                          "there",
                          &flags->shard_config, false},
                         {"--data-dir",
                          "data and state directories; default: those of configuration files and "
                          "of the packages",
                          &flags->directories, false},
                         {"--strict", "warnings count as errors", &flags->is_strict, false},
                         {"--list", "only list what is looked for", &flags->lists_checks, false}},
           .run_alone = [flags](const Invocation& in) { return DoctorVerb(in, *flags); }}};
}

void ExamineMachine(const ThisMachine& machine, const DoctorFlags& flags, const ReadConfig& read,
                    const client::TlsOptions& tls, const std::string& admin_address,
                    Report& report) {
  CheckKernel(machine, report);
  std::vector<ServerConfig> servers;
  LoadServer(machine, flags.coordinator_config, true, read, servers, report);
  LoadServer(machine, flags.shard_config, false, read, servers, report);
  CheckServers(machine, servers, admin_address, report);
  for (const std::string& path : DirectoriesOf(machine, flags, servers)) {
    CheckDirectory(machine, path, report);
  }
  for (const ServerConfig& server : servers) {
    CheckCertificates({.where = server.path,
                       .files = {.certificate = server.Value("tls-cert"),
                                 .key = server.Value("tls-key"),
                                 .authorities = server.Value("tls-ca"),
                                 .revoked = server.Value("tls-revoked")},
                       .role = server.is_coordinator ? Role::kCoordinator : Role::kNode,
                       .name = server.Value("name")},
                      machine.now, report);
    if (server.is_coordinator) CheckEtcd(machine, server, report);
  }
  CheckCertificates({.where = "this command line", .files = tls}, machine.now, report);
}

absl::Status Verdict(const Report& report, bool is_strict) {
  const std::size_t errors = report.Count(Severity::kError);
  const std::size_t warnings = report.Count(Severity::kWarning);
  if (errors > 0) return absl::AbortedError("mistakes were found");
  if (is_strict && warnings > 0) return absl::AbortedError("warnings were found");
  return absl::OkStatus();
}

}  // namespace embla::cli
