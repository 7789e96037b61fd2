#include "tests/fault/failpoint_places.h"

#include <filesystem>
#include <regex>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"

namespace embla::fault {
namespace {

namespace fs = std::filesystem;

constexpr auto kCoordinator = Program::kCoordinator;
constexpr auto kShard = Program::kShard;
constexpr auto kStarting = Driver::kStarting;
constexpr auto kCancelling = Driver::kCancelling;
constexpr auto kForgetting = Driver::kForgetting;
constexpr auto kNothing = Driver::kNothing;

constexpr FailpointPlace kPlaces[] = {
    {kCoordinator, "coordinator.registered", 4, kStarting},
    {kCoordinator, "copies.commit", 4},
    {kCoordinator, "copies.commit_done", 4},
    {kCoordinator, "file.dir_sync", 0, kStarting},
    {kCoordinator, "file.open", 0, kStarting},
    {kCoordinator, "file.read", 0, kStarting},
    {kCoordinator, "file.rename", 0, kStarting},
    {kCoordinator, "file.sync", 40, Driver::kServing, 40},
    {kCoordinator, "file.truncate", 0, kStarting},
    {kCoordinator, "file.write", 40, Driver::kServing, 40},
    {kCoordinator, "jobs.forget", 0, kForgetting},
    {kCoordinator, "jobs.forget_done", 0, kForgetting},
    {kCoordinator, "jobs.put", 4},
    {kCoordinator, "jobs.put_done", 4},
    {kCoordinator, "units.orders", 60},
    {kCoordinator, "units.publish", 6},
    {kCoordinator, "units.publish_done", 6},
    {kCoordinator, "units.put", 15},
    {kCoordinator, "units.put_done", 15},
    {kCoordinator, "units.report", 100},
    {kShard, "file.dir_sync", 10, Driver::kServing, 20},
    {kShard, "file.open", 20, Driver::kServing, 40},
    {kShard, "file.read", 10, kStarting},
    {kShard, "file.rename", 1, kStarting},
    {kShard, "file.sync", 100, Driver::kServing, 100},
    {kShard, "file.truncate", 1, kStarting},
    {kShard, "file.write", 200, Driver::kServing, 200},
    {.name = "frame_socket.receive", .walked_hit = 100, .needs_sockets = true},
    {.name = "link.lend", .driver = Driver::kLarge, .needs_sockets = true},
    {kShard, "log.direct", 2, Driver::kLarge},
    {kShard, "log.remove", 10, Driver::kServing, 10},
    {kShard, "log.rename", 10, Driver::kServing, 5},
    {kShard, "log.reserve", 4, Driver::kLarge, 3},
    {kShard, "mover.chunk", 8},
    {kShard, "mover.covered", 4},
    {kShard, "mover.discard", 2, kCancelling},
    {kShard, "mover.final", 4},
    {kShard, "mover.holds", 4},
    {kShard, "mover.host_done", 20},
    {kShard, "mover.install", 4},
    {kShard, "mover.log_abort", 2, kCancelling},
    {kShard, "mover.log_discard", 2, kCancelling},
    {kShard, "mover.log_import", 4},
    {kShard, "mover.log_own", 4},
    {kShard, "mover.log_release", 4},
    {kShard, "mover.log_relocate", 4},
    {kShard, "mover.log_trim", 4},
    {kShard, "mover.log_update", 0, kNothing, 1, false,
     "the mover logs no updates: a trainer's is logged by its decision, past update.recorded"},
    {kShard, "mover.logged", 20},
    {kShard, "mover.nothing", 0, kNothing, 1, false,
     "no place: StageRows, or the update task, has done the work before"},
    {kShard, "mover.pull", 8},
    {kShard, "mover.release", 4},
    {kShard, "mover.relocate", 4},
    {kShard, "mover.report", 10},
    {kShard, "mover.reserve", 4},
    {kShard, "mover.reset", 0, kForgetting},
    {kShard, "mover.stage", 8},
    {kShard, "mover.trim", 4},
    {kShard, "recovery.applied", 1, kStarting},
    {kShard, "recovery.record", 100, kStarting},
    {kShard, "recovery.rows", 4, kStarting},
    {kShard, "recovery.taken_over", 1, kStarting},
    {kShard, "shard.install_plan", 6, Driver::kServing, 2},
    {kShard, "shard.plan_installed", 6, Driver::kServing, 2},
    {kShard, "shard.registered", 2, kStarting},
    {kShard, "snapshot.begun", 2},
    {kShard, "snapshot.rows", 20},
    {kShard, "snapshot.truncated", 2},
    {kShard, "snapshot.whole", 2},
    {kShard, "update.recorded", 200, Driver::kServing, 200},
};

bool IsProductSource(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool is_source = name.ends_with(".cc") || name.ends_with(".h") || name.ends_with(".cu");
  const bool is_test =
      name.ends_with("_test.cc") || path.string().find("/testing/") != std::string::npos;
  return is_source && !is_test && name != "failpoint.h" && name != "failpoint.cc";
}

absl::Status AddFrom(const fs::path& path, std::set<std::string>& names) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
  static const std::regex call(R"(\b(?:Failpoint|CrashPoint)\(\s*(\"[^\"]+\"|[^\s)]*))");
  for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
    const std::string argument = (*it)[1];
    if (argument.starts_with('"')) {
      names.insert(argument.substr(1, argument.size() - 2));
    } else if (argument != "FailpointOf(work") {  // Its names are in mover_failpoints.cc.
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), " has a failpoint whose name cannot be read: ", argument));
    }
  }
  if (path.filename() != "mover_failpoints.cc") return absl::OkStatus();
  static const std::regex literal(R"(return \"([^\"]+)\")");
  for (std::sregex_iterator it(text.begin(), text.end(), literal), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const FailpointPlace> FailpointPlaces() { return kPlaces; }

absl::StatusOr<std::set<std::string>> FailpointsInSources(const std::string& root) {
  std::set<std::string> names;
  for (const char* const folder : {"core", "server"}) {
    const fs::path below = fs::path(root) / folder;
    if (!fs::is_directory(below)) {
      return absl::NotFoundError(absl::StrCat(below.string(), " is no folder"));
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(below)) {
      if (IsProductSource(entry.path())) EMBLA_RETURN_IF_ERROR(AddFrom(entry.path(), names));
    }
  }
  return names;
}

}  // namespace embla::fault
