// embla-shard: one node of an Embla cluster. Holds slices of the tables and serves them.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "core/base/failpoint.h"
#include "core/base/file.h"
#include "core/base/heap.h"
#include "core/base/log.h"
#include "core/base/named_option.h"
#include "core/base/program_flags.h"
#include "core/base/text.h"
#include "core/base/tls_flags.h"
#include "core/base/usage_error.h"
#include "server/app/device_list.h"
#include "server/app/log_flags.h"
#include "server/app/port_file.h"
#include "server/app/shard_process.h"
#include "server/app/stop_signal.h"
#include "server/app/systemd_notice.h"
#include "server/rpc/descriptor_limit.h"

namespace embla {
namespace {

// Exit codes: 0 stopped by a signal, 1 it failed, 2 the flags are wrong.
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Flags {
  ShardProcessOptions process;
  std::string devices = "cpu:1";
  Collectives collectives = Collectives::kAuto;
  std::string memory_per_device = "0";
  std::string gpu_cache = "0";
  std::string snapshot_after = "128MiB";
  std::string kept_heap = "512MiB";
  std::string trainer_quotas;
  std::string port_file;
  LogFlags log;
  std::size_t descriptors_min = kDescriptorsMin;
  std::uint32_t connection_age_seconds = 3'600;
  std::uint32_t heartbeat_ms = 0;
  std::uint32_t stop_grace_ms = 10'000;
};

void DefineLimits(CLI::App& app, Flags& flags) {
  app.add_option("--connections-per-address", flags.process.server.connections.per_address_max,
                 "Connections that one IP address, or one user of a unix socket, may have to one "
                 "listener")
      ->check(CLI::Range(1u, 1'000'000u));
  app.add_option("--trainer-quotas", flags.trainer_quotas,
                 "File of rows and bytes in flight, and rows a second, that trainers may have at "
                 "this node, JSON; read again when it changes; empty: no quotas");
  app.add_option("--kept-heap", flags.kept_heap,
                 "Bytes of free memory kept for the next requests while requests come, at most "
                 "2GiB - 1; given back to the system within 10 s of rest. 0: malloc's own rules");
  app.add_option("--descriptors-min", flags.descriptors_min,
                 "Do not start where fewer files and sockets may be open; the soft limit is raised "
                 "to the hard one");
}

// Defines the options for the node's identity and its proof.
void DefineIdentity(CLI::App& app, ShardProcessOptions& process) {
  app.add_option("--name", process.name, "Name of this node, the same at every start")
      ->default_str("the certificate's name, or the host's");
  app.add_option("--cluster-key", process.cluster_key_file,
                 "File of the cluster's key, a copy of the coordinator's")
      ->default_str("given by the coordinator over TLS, else its own file, on its host");
  app.add_flag("--accept-loss", process.accept_loss,
               "Take part even if rows of this node are lost: those that are neither here nor on "
               "another node begin at their initial values");
  app.add_option("--coordinator", process.coordinator,
                 "Address of the coordinator, host:port; of several all, with commas")
      ->required();
  app.add_flag("--await-coordinator", process.await_coordinator,
               "Answer nobody before the coordinator has confirmed what this node has: for "
               "directories on disks that may be put back from an image of the whole disk");
}

void DefineCollectives(CLI::App& app, Collectives& collectives) {
  AddNamedOption(
      app, "--collectives", collectives,
      {{"auto", Collectives::kAuto},
       {"host", Collectives::kHost},
       {"peer", Collectives::kPeer},
       {"nccl", Collectives::kNccl}},
      "How the devices of this node add up partial sums: host (any devices), peer (GPUs "
      "that read one another's memory), nccl; auto: the fastest, as measured at the start")
      ->default_str("auto");
}

void Define(CLI::App& app, Flags& flags) {
  ShardProcessOptions& process = flags.process;
  process.metrics_listen = "127.0.0.1:0";
  AddProgramFlags<CLI::CallForVersion>(app);
  AddConfigFile(app);
  app.option_defaults()->always_capture_default();
  DefineIdentity(app, process);
  app.add_option("--listen", process.server.listen,
                 "Where to serve trainers: host:port (0: a free port) or unix:/path");
  app.add_option("--advertise", process.advertise,
                 "Address under which others reach this node; needed behind NAT")
      ->default_str("where it listens");
  app.add_option("--metrics-listen", process.metrics_listen,
                 "Where to serve /metrics; empty for nowhere");
  AddTlsFlags(app, process.tls);
  AddTokensFlag(app, process.tls);
  app.add_flag("--insecure", process.server.insecure,
               "Allow listening on addresses that other machines can reach, without encryption");
  app.add_option(
         "--connection-age", flags.connection_age_seconds,
         "With TLS, seconds after which a connection is made anew, so that certificates are "
         "judged again; 0: never")
      ->check(CLI::Range(0u, 1'000'000u));
  app.add_flag("!--no-data-sockets", process.data.data_sockets,
               "Clients use gRPC alone (docs/data_sockets.md)");
  app.add_option("--devices", flags.devices,
                 "cpu:N: N CPU devices; gpu:I, gpu:I-J, gpu:all: GPUs; lists: gpu:0,cpu:2");
  DefineCollectives(app, flags.collectives);
  app.add_option("--memory-per-device", flags.memory_per_device,
                 "Bytes for rows per device, such as 8GiB; 0: 80 % of the memory / CPU devices, "
                 "90 % of a GPU's");
  app.add_option("--gpu-cache", flags.gpu_cache,
                 "Bytes per GPU device for rows in use; all rows are in host memory then, of which "
                 "--memory-per-device is stated. 0: all rows are on the GPU");
  AddNamedOption(app, "--gpu-cache-policy", process.gpu_cache_policy,
                 {{"lru", RowCache::Policy::kLru}, {"lfu", RowCache::Policy::kLfu}},
                 "With --gpu-cache, which row goes when another one needs its place: lru (used "
                 "longest ago) or lfu (used by the fewest batches since it came)")
      ->default_str("lru");
  app.add_option("--threads-per-device", process.threads_per_device,
                 "Threads that gather and update rows, per device; 0: cores / devices")
      ->check(CLI::Range(0u, 256u));
  app.add_option("--data-dir", process.data_dir,
                 "Directory of this node's journal, from which it recovers; empty: rows live as "
                 "long as the process");
  AddNamedOption(app, "--durability", process.durability,
                 {{"none", Durability::kNone},
                  {"queued", Durability::kQueued},
                  {"written", Durability::kWritten},
                  {"synced", Durability::kSynced}},
                 "With --data-dir, what an acknowledged update has reached: none, queued (survives "
                 "a clean stop), written (survives the death of the process), synced (survives "
                 "the loss of power)")
      ->default_str("written");
  app.add_option("--snapshot-after", flags.snapshot_after,
                 "With --data-dir, how far its journal grows before a snapshot of all rows takes "
                 "its place: so many bytes, such as 1GiB, and at least a quarter of the rows");
  app.add_option("--heartbeat-ms", flags.heartbeat_ms, "0: what the coordinator says");
  app.add_option("--stop-grace-ms", flags.stop_grace_ms, "How long to finish calls in flight");
  app.add_option("--port-file", flags.port_file,
                 "Written when ready: {\"listen\": ..., \"metrics\": ...}");
  AddLogFlags(app, flags.log);
}

// Errors that only several flags together show.
absl::Status Validate(const CLI::App& app, const Flags& flags) {
  if (app.count("--durability") > 0 && flags.process.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "--durability needs --data-dir: without a journal, updates live as long as the process");
  }
  return flags.port_file.empty() ? absl::OkStatus()
                                 : Annotate(CheckWritable(flags.port_file), "--port-file");
}

absl::Status Run(Flags& flags, const StopSignal& stop_signal) {
  Apply(flags.log);
  KeepFewArenas();
  const absl::StatusOr<std::int64_t> kept_heap = ParseBytes(flags.kept_heap);
  if (!kept_heap.ok()) return Annotate(kept_heap.status(), "--kept-heap");
  flags.process.kept_heap_bytes = static_cast<std::size_t>(*kept_heap);
  const absl::Status kept = KeepHeap(flags.process.kept_heap_bytes);
  if (absl::IsInvalidArgument(kept)) return Annotate(kept, "--kept-heap");
  if (!kept.ok()) LogWarning("shard", kept.message());
  if (const absl::Status enough = RaiseDescriptorLimit(flags.descriptors_min); !enough.ok()) {
    return enough;
  }
  WarnOfFailpoints();
  if (!flags.trainer_quotas.empty()) {
    flags.process.data.trainer_quotas = OpenTrainerQuotas(flags.trainer_quotas);
    const absl::Status loaded = flags.process.data.trainer_quotas->Load();
    if (!loaded.ok()) return loaded;
  }
  absl::StatusOr<std::int64_t> memory = ParseBytes(flags.memory_per_device);
  if (!memory.ok()) return Annotate(memory.status(), "--memory-per-device");
  const absl::StatusOr<std::int64_t> gpu_cache = ParseBytes(flags.gpu_cache);
  if (!gpu_cache.ok()) return Annotate(gpu_cache.status(), "--gpu-cache");
  flags.process.gpu_cache_bytes = static_cast<std::size_t>(*gpu_cache);
  const absl::StatusOr<std::int64_t> snapshot_after = ParseBytes(flags.snapshot_after);
  if (!snapshot_after.ok()) return Annotate(snapshot_after.status(), "--snapshot-after");
  flags.process.snapshots.journal_bytes_min = static_cast<std::uint64_t>(*snapshot_after);
  const absl::StatusOr<std::vector<DeviceItem>> items = ParseDevices(flags.devices);
  if (!items.ok()) return items.status();
  const absl::StatusOr<DeviceList> devices = OpenDevices(*items,
                                                         {.memory_per_device = *memory,
                                                          .gpu_cache_bytes = *gpu_cache,
                                                          .collectives = flags.collectives},
                                                         MachineGpus());
  if (!devices.ok()) return devices.status();
  for (const std::unique_ptr<gpu::Device>& gpu : devices->owned) {
    const gpu::DeviceProperties& properties = gpu->properties();
    LogInfo("shard", "gpu ordinal=", properties.ordinal, " name=", properties.name,
            " bus=", properties.bus_id, " memory=", properties.memory_bytes,
            " free=", properties.free_bytes);
  }
  if (!devices->owned.empty()) {
    LogInfo("shard", "collectives=", ToAbsl(NameOf(devices->choice.collectives)), " why=\"",
            devices->choice.why, "\"");
  }
  flags.process.collectives = devices->choice.collectives;
  flags.process.devices = devices->specs;
  flags.process.gpus = devices->gpus;
  flags.process.heartbeat = absl::Milliseconds(flags.heartbeat_ms);
  flags.process.server.connection_age = absl::Seconds(flags.connection_age_seconds);
  flags.process.stop_grace = absl::Milliseconds(flags.stop_grace_ms);
  // The main thread waits for signals: this one tells it to look at refusal().
  flags.process.on_refused = [](const absl::Status&) { ::kill(::getpid(), SIGTERM); };
  absl::StatusOr<std::unique_ptr<ShardProcess>> process = ShardProcess::Start(flags.process);
  if (!process.ok()) return process.status();
  if (!flags.port_file.empty()) {
    const absl::Status written = WritePortFile(
        flags.port_file,
        {{"listen", (*process)->address()}, {"metrics", (*process)->metrics_address()}});
    if (!written.ok()) return written;
  }
  const int signal = WaitForStop(stop_signal, [&] { return (*process)->ready(); });
  const absl::Status refusal = (*process)->refusal();
  LogInfo("shard", "stopping signal=", signal);
  process->reset();
  if (!refusal.ok()) return refusal;
  LogInfo("shard", "stopped");
  return absl::OkStatus();
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  const embla::StopSignal stop_signal;
  CLI::App app("One node of an Embla cluster", "embla-shard");
  embla::Flags flags;
  embla::Define(app, flags);
  embla::DefineLimits(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return embla::ExitAfterParse(app, error);
  }
  absl::Status status = embla::Validate(app, flags);
  const bool is_valid = status.ok();
  if (is_valid) status = embla::Run(flags, stop_signal);
  if (status.ok()) return 0;
  std::fprintf(stderr, "embla-shard: %s\n", status.ToString().c_str());
  return is_valid ? embla::kFailed : embla::kWrongUsage;
}
