// embla-coordinator: plans where tables live and tells everyone. Never on the data path.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "core/base/failpoint.h"
#include "core/base/file.h"
#include "core/base/heap.h"
#include "core/base/log.h"
#include "core/base/program_flags.h"
#include "core/base/text.h"
#include "core/base/tls_flags.h"
#include "core/base/usage_error.h"
#include "server/app/coordinator_member.h"
#include "server/app/coordinator_process.h"
#include "server/app/log_flags.h"
#include "server/app/port_file.h"
#include "server/app/stop_signal.h"
#include "server/app/systemd_notice.h"
#include "server/rpc/descriptor_limit.h"

namespace embla {
namespace {

// Exit codes: 0 stopped by a signal, 1 it failed, 2 the flags are wrong.
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Flags {
  CoordinatorProcessOptions process;
  std::string state;
  CoordinatorMemberOptions member;  // For a state in etcd.
  std::uint32_t lease_ms = 3'000;
  std::string port_file;
  LogFlags log;
  std::size_t descriptors_min = kDescriptorsMin;
  std::uint32_t connection_age_seconds = 3'600;
  std::uint32_t heartbeat_ms = 1'000;
  std::uint32_t dead_after_ms = 5'000;
  std::uint32_t stop_grace_ms = 5'000;
  std::uint32_t session_lease_ms = 600'000;
};

// For a state in etcd.
void DefineEtcd(CLI::App& app, Flags& flags) {
  CoordinatorMemberOptions& member = flags.member;
  app.add_option("--advertise", member.advertise,
                 "Address by which others reach --listen, of several coordinators")
      ->default_str("where it listens");
  app.add_option("--admin-advertise", member.admin_advertise,
                 "Address by which operators reach --admin-listen, of several coordinators")
      ->default_str("where it listens");
  app.add_option("--etcd-ca", member.etcd_ca_file, "File of the CA of etcd's members: TLS to them");
  app.add_option("--etcd-cert", member.etcd_cert_file, "File of the certificate shown to etcd");
  app.add_option("--etcd-key", member.etcd_key_file, "File of the certificate's key");
  app.add_option(
         "--lease-ms", flags.lease_ms,
         "Another coordinator leads when etcd has not heard of the leader for so long; whole "
         "seconds")
      ->check(CLI::Range(2'000u, 60'000u));
}

void Define(CLI::App& app, Flags& flags) {
  CoordinatorProcessOptions& process = flags.process;
  process.metrics_listen = "127.0.0.1:0";
  AddProgramFlags<CLI::CallForVersion>(app);
  AddConfigFile(app);
  app.option_defaults()->always_capture_default();
  app.add_option("--listen", process.listen,
                 "Where to serve shard servers and trainers: host:port (0: a free port)");
  app.add_option("--admin-listen", process.admin_listen, "Where to serve operators");
  app.add_flag("--admin-reflection", process.admin_reflection,
               "Tell operators there what the services are, as grpcurl asks (gRPC reflection)");
  app.add_option("--metrics-listen", process.metrics_listen,
                 "Where to serve /metrics; empty for nowhere");
  AddTlsFlags(app, process.tls);
  AddTokensFlag(app, process.tls);
  app.add_flag("--insecure", process.insecure,
               "Allow listening on addresses that other machines can reach, without encryption");
  app.add_option(
         "--connection-age", flags.connection_age_seconds,
         "With TLS, seconds after which a connection is made anew, so that certificates are "
         "judged again; 0: never")
      ->check(CLI::Range(0u, 1'000'000u));
  app.add_option("--audit-log", process.audit_log,
                 "File that gets a line of JSON for every call that changes the cluster; empty: "
                 "none");
  app.add_option(
         "--state-dir,--state", flags.state,
         "Place of the cluster's state: a directory, or etcd://HOST[:PORT],.../PREFIX, which "
         "several coordinators share")
      ->required();
  DefineEtcd(app, flags);
  app.add_option("--cluster-key", process.cluster_key_file,
                 "File of the key by which shard servers prove that they are this cluster's")
      ->default_str("STATE/cluster.key, made where it is missing; in etcd there is none");
  app.add_option("--heartbeat-ms", flags.heartbeat_ms, "How often shard servers report")
      ->check(CLI::Range(10u, 600'000u));
  app.add_option("--dead-after-ms", flags.dead_after_ms,
                 "A shard server that is silent for so long is dead");
  app.add_option("--session-lease-ms", flags.session_lease_ms,
                 "A trainer's session ends when nothing is heard of the trainer for so long")
      ->check(CLI::Range(1'000u, 4'000'000'000u));
  app.add_option("--stop-grace-ms", flags.stop_grace_ms, "How long to finish calls in flight");
  app.add_option("--connections-per-address", process.connections.per_address_max,
                 "Connections that one IP address, or one user of a unix socket, may have to one "
                 "listener")
      ->check(CLI::Range(1u, 1'000'000u));
  app.add_option("--descriptors-min", flags.descriptors_min,
                 "Do not start where fewer files and sockets may be open; the soft limit is raised "
                 "to the hard one");
  app.add_option("--port-file", flags.port_file,
                 "Written when ready: {\"listen\": ..., \"admin\": ..., \"metrics\": ...}");
  AddLogFlags(app, flags.log);
}

// Serves until a signal comes. `process` is a CoordinatorProcess or a CoordinatorMember.
template <typename Process>
absl::Status Serve(absl::StatusOr<std::unique_ptr<Process>> process, const Flags& flags,
                   const StopSignal& stop_signal) {
  if (!process.ok()) return process.status();
  if (!flags.port_file.empty()) {
    const absl::Status written =
        WritePortFile(flags.port_file, {{"listen", (*process)->address()},
                                        {"admin", (*process)->admin_address()},
                                        {"metrics", (*process)->metrics_address()}});
    if (!written.ok()) return written;
  }
  const int signal = WaitForStop(stop_signal, [&] { return (*process)->ready(); });
  LogInfo("coordinator", "stopping signal=", signal);
  process->reset();
  LogInfo("coordinator", "stopped");
  return absl::OkStatus();
}

absl::Status Run(Flags& flags, const StopSignal& stop_signal) {
  Apply(flags.log);
  WarnOfFailpoints();
  KeepFewArenas();
  if (const absl::Status enough = RaiseDescriptorLimit(flags.descriptors_min); !enough.ok()) {
    return enough;
  }
  CoordinatorProcessOptions& options = flags.process;
  options.coordinator.heartbeat_interval = absl::Milliseconds(flags.heartbeat_ms);
  options.coordinator.dead_after = absl::Milliseconds(flags.dead_after_ms);
  options.coordinator.session_lease = absl::Milliseconds(flags.session_lease_ms);
  options.connection_age = absl::Seconds(flags.connection_age_seconds);
  options.stop_grace = absl::Milliseconds(flags.stop_grace_ms);
  if (!IsEtcdAddress(flags.state)) {
    options.state_dir = flags.state;
    return Serve(CoordinatorProcess::Start(options), flags, stop_signal);
  }
  absl::StatusOr<EtcdAddress> etcd = ParseEtcdAddress(flags.state);
  if (!etcd.ok()) return Annotate(etcd.status(), "--state");
  flags.member.process = options;
  flags.member.etcd = *std::move(etcd);
  flags.member.lease = absl::Ceil(absl::Milliseconds(flags.lease_ms), absl::Seconds(1));
  return Serve(CoordinatorMember::Start(flags.member), flags, stop_signal);
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  const embla::StopSignal stop_signal;
  CLI::App app("The coordinator of an Embla cluster", "embla-coordinator");
  embla::Flags flags;
  embla::Define(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return embla::ExitAfterParse(app, error);
  }
  absl::Status status;
  if (!flags.port_file.empty()) {
    status = embla::Annotate(embla::CheckWritable(flags.port_file), "--port-file");
  }
  const bool is_valid = status.ok();
  if (is_valid) status = embla::Run(flags, stop_signal);
  if (status.ok()) return 0;
  std::fprintf(stderr, "embla-coordinator: %s\n", status.ToString().c_str());
  return is_valid ? embla::kFailed : embla::kWrongUsage;
}
