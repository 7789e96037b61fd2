#include "tools/load/local_cluster.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/app/coordinator_process.h"
#include "server/app/shard_process.h"

namespace embla::load {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("pipe failed");
  return Pipe{ends[0], ends[1]};
}

void WriteLine(int file, const std::string& line) {
  const std::string text = line + "\n";
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t got = ::write(file, text.data() + written, text.size() - written);
    if (got <= 0) return;
    written += got;
  }
}

std::string ReadLine(int file) {
  std::string line;
  for (char c = 0; ::read(file, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

void AwaitEnd(int lifeline) {
  char c = 0;
  while (::read(lifeline, &c, 1) > 0) {
  }
}

struct Child {
  pid_t process = -1;
  int lifeline = -1;
  std::string line;  // Its output when it was ready.
};

// Runs `body` in a child. It writes one line when it is ready, waits for the end of the lifeline
// and returns. Lifelines of earlier children must be closed in this one, or they would not end.
using ChildBody = std::function<absl::Status(int ready, int lifeline)>;
absl::StatusOr<Child> Fork(const ChildBody& body, std::span<const int> earlier_lifelines) {
  EMBLA_ASSIGN_OR_RETURN(const Pipe ready, MakePipe());
  EMBLA_ASSIGN_OR_RETURN(const Pipe lifeline, MakePipe());
  const pid_t process = ::fork();
  if (process < 0) return absl::InternalError("fork failed");
  if (process == 0) {
    ::close(ready.read);
    ::close(lifeline.write);
    for (const int earlier : earlier_lifelines) ::close(earlier);
    SetLogLevel(LogLevel::kError);
    const absl::Status status = body(ready.write, lifeline.read);
    if (!status.ok()) WriteLine(ready.write, absl::StrCat("error ", status.ToString()));
    ::_exit(status.ok() ? 0 : 1);
  }
  ::close(ready.write);
  ::close(lifeline.read);
  Child child{process, lifeline.write, ReadLine(ready.read)};
  ::close(ready.read);
  if (!child.line.empty() && !child.line.starts_with("error ")) return child;
  ::close(lifeline.write);
  ::waitpid(process, nullptr, 0);
  return absl::UnavailableError(absl::StrCat("a process of the local cluster ended: ", child.line));
}

absl::Status RunCoordinator(const ClusterKeyPtr& key, int ready, int lifeline) {
  CoordinatorProcessOptions options;
  options.coordinator.key = key;
  EMBLA_ASSIGN_OR_RETURN(const auto process, CoordinatorProcess::Start(options));
  WriteLine(ready, absl::StrCat(process->address(), " ", process->admin_address()));
  AwaitEnd(lifeline);
  return absl::OkStatus();
}

absl::Status RunShard(const ShardProcessOptions& options, int ready, int lifeline) {
  EMBLA_ASSIGN_OR_RETURN(const auto process, ShardProcess::Start(options));
  WriteLine(ready, process->address());
  AwaitEnd(lifeline);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster);
  const auto key = std::make_shared<const ClusterKey>(ClusterKey::Generate());
  EMBLA_ASSIGN_OR_RETURN(
      const Child coordinator,
      Fork([&](int ready, int lifeline) { return RunCoordinator(key, ready, lifeline); }, {}));
  cluster->coordinator_ = coordinator.process;
  cluster->lifelines_.push_back(coordinator.lifeline);
  const std::vector<std::string> addresses = absl::StrSplit(coordinator.line, ' ');
  cluster->coordinator_address_ = addresses.front();
  cluster->admin_address_ = addresses.back();
  for (int node = 1; node <= options.nodes; ++node) {
    ShardProcessOptions shard;
    shard.name = absl::StrCat("node", node);
    shard.coordinator = cluster->coordinator_address_;
    shard.cluster_key = key;
    shard.threads_per_device = options.threads_per_device;
    shard.devices.assign(options.devices_per_node,
                         DeviceSpec{DeviceKind::kCpu, options.memory_per_device});
    EMBLA_ASSIGN_OR_RETURN(
        const Child child,
        Fork([&](int ready, int lifeline) { return RunShard(shard, ready, lifeline); },
             cluster->lifelines_));
    cluster->shards_.push_back(child.process);
    cluster->lifelines_.push_back(child.lifeline);
  }
  return cluster;
}

LocalCluster::~LocalCluster() {
  // Shard servers first: they report to the coordinator.
  for (auto lifeline = lifelines_.rbegin(); lifeline != lifelines_.rend(); ++lifeline) {
    ::close(*lifeline);
  }
  for (const pid_t shard : shards_) ::waitpid(shard, nullptr, 0);
  if (coordinator_ > 0) ::waitpid(coordinator_, nullptr, 0);
}

}  // namespace embla::load
