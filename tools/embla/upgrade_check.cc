#include "tools/embla/upgrade_check.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"

namespace embla::cli {
namespace {

struct Program {
  std::string name;     // "the coordinator", "node n3"
  std::string version;  // Empty: not heard of.
  std::uint32_t protocol = 0;
};

std::string NameOfNode(const v1::NodeStatus& status) {
  const auto spec = NodeSpecFromJson(status.node_json());
  return spec.ok() ? absl::StrCat("node ", spec->name) : "a node";
}

std::vector<Program> ProgramsOf(const ClusterFacts& facts) {
  std::vector<Program> programs = {
      {"the coordinator", facts.status.version(), facts.status.protocol_version()}};
  for (const v1::NodeStatus& status : facts.nodes.nodes()) {
    programs.push_back({NameOfNode(status), status.version(), status.protocol_version()});
  }
  return programs;
}

// Only programs that say nothing else have the protocol of their release.
std::uint32_t ProtocolOf(const Program& program, const ReleaseFormats& release) {
  return program.protocol != 0 ? program.protocol : release.protocol;
}

class UpgradeChecker {
 public:
  UpgradeChecker(const ClusterFacts& facts, const Version& to,
                 std::span<const ReleaseFormats> known)
      : facts_(facts), to_(to), known_(known), programs_(ProgramsOf(facts)) {}

  UpgradeVerdict Check() {
    CheckFormats();
    for (const v1::NodeStatus& status : facts_.nodes.nodes()) CheckNode(status);
    CheckJobs();
    if (verdict_.path == UpgradePath::kRolling) PlanRolling();
    if (verdict_.path == UpgradePath::kStopped) PlanStopped();
    return std::move(verdict_);
  }

 private:
  void AddIssue(const std::string& where, const std::string& what, const std::string& next) {
    verdict_.issues.push_back({where, what, next});
  }
  void Allow(UpgradePath at_most) { verdict_.path = std::max(verdict_.path, at_most); }

  void CheckFormats() {
    const ReleaseFormats* const target = FormatsOf(to_, known_);
    if (target == nullptr) {
      Allow(UpgradePath::kImpossible);
      return AddIssue(
          absl::StrCat("version ", to_.text()), "this program does not know its formats",
          absl::StrCat("ask the `embla` of ", to_.text(), ", which knows the releases before it"));
    }
    for (const Program& program : programs_) {
      const std::optional<Version> version = ParseVersion(program.version);
      if (program.version.empty()) continue;  // It is not there: CheckNode says so.
      const ReleaseFormats* const running =
          version.has_value() ? FormatsOf(*version, known_) : nullptr;
      if (running == nullptr) {
        Allow(UpgradePath::kImpossible);
        AddIssue(program.name,
                 absl::StrCat("nobody knows the formats of its build, ", program.version),
                 "ask the `embla` of the newer of the two versions");
        continue;
      }
      if (ProtocolOf(program, *running) != target->protocol) Allow(UpgradePath::kStopped);
      CompareFiles(program, *running, *target);
    }
  }

  void CompareFiles(const Program& program, const ReleaseFormats& running,
                    const ReleaseFormats& target) {
    for (const FileFormat& file : running.files) {
      const auto found = std::ranges::find(target.files, file.file, &FileFormat::file);
      if (found != target.files.end() && found->format == file.format) continue;
      Allow(UpgradePath::kImpossible);
      AddIssue(program.name,
               absl::StrCat(ToAbsl(file.file), " has format ", file.format, ", and ", to_.text(),
                            " reads ",
                            found == target.files.end() ? "none" : absl::StrCat(found->format)),
               "read CHANGELOG.md: embla table export, a new cluster, embla table import");
    }
  }

  bool HasRows(const v1::NodeStatus& status) const {
    const auto spec = NodeSpecFromJson(status.node_json());
    return spec.ok() && std::ranges::any_of(facts_.plan.tables(), [&](const TablePlan& table) {
             return HoldersOf(table).contains(spec->id);
           });
  }

  void CheckNode(const v1::NodeStatus& status) {
    const std::string name = NameOfNode(status);
    if (!status.live()) {
      return AddIssue(
          name, "it is not there",
          "start it, or embla node forget it: two nodes that are away are one too many");
    }
    if (status.failed_plan_version() != 0 ||
        status.plan_version() != facts_.status.plan_version()) {
      AddIssue(
          name,
          absl::StrCat("it has plan ", status.plan_version(), " of ", facts_.status.plan_version(),
                       status.failure().empty() ? "" : absl::StrCat(": ", status.failure())),
          "wait until embla node ls shows the same plan for all");
    }
    for (const std::string& why : status.device_stopped()) {
      if (!why.empty())
        AddIssue(name, absl::StrCat("a device has stopped: ", why), "see to it first");
    }
    if (status.directory() != v1::NodeStatus::DIRECTORY_KEPT && HasRows(status)) {
      AddIssue(name,
               status.directory() == v1::NodeStatus::DIRECTORY_NONE
                   ? "it has no data directory: its rows are gone when it is restarted"
                   : "nobody knows whether it has a data directory",
               "embla node drain it, and wait until that is done");
    }
  }

  void CheckJobs() {
    for (const v1::Job& job : facts_.jobs.jobs()) {
      const bool rests = job.state() == v1::JOB_STATE_PAUSED && job.units_open() == 0;
      if (client::IsOver(job.state()) || rests) continue;
      AddIssue(
          absl::StrCat("job ", job.id()),
          absl::StrCat(job.description(), ": ", job.units_open(), " units are on the move"),
          absl::StrCat("embla job watch ", job.id(), ", or embla job pause it until it rests"));
    }
  }

  bool IsThere(const Program& program) const {
    const std::optional<Version> version = ParseVersion(program.version);
    return version.has_value() && *version == to_;
  }

  // Whether some program is of a later version: then this is the way back.
  bool GoesBack() const {
    return std::ranges::any_of(programs_, [this](const Program& program) {
      const std::optional<Version> version = ParseVersion(program.version);
      return version.has_value() && *version > to_;
    });
  }

  void PlanRolling() {
    std::vector<std::string>& steps = verdict_.steps;
    steps.emplace_back("embla cluster backup --state-dir DIR --to PATH, or a snapshot of etcd");
    std::vector<std::string> nodes;
    for (std::size_t i = 1; i < programs_.size(); ++i) {
      if (IsThere(programs_[i])) continue;
      nodes.push_back(absl::StrCat(programs_[i].name,
                                   ": SIGTERM, start it with the same --name and --data-dir, wait "
                                   "for live and the plan of the others in embla node ls"));
    }
    const std::string coordinators =
        "the coordinator: stop it, start it on the same --state; of several those that stand by, "
        "then the one that leads";
    // A newer coordinator knows what older nodes say.
    if (!GoesBack() && !IsThere(programs_[0])) steps.push_back(coordinators);
    steps.insert(steps.end(), nodes.begin(), nodes.end());
    if (GoesBack() && !IsThere(programs_[0])) steps.push_back(coordinators);
    steps.emplace_back("trainers and embla, at any time");
  }

  void PlanStopped() {
    verdict_.steps = {"embla cluster backup --state-dir DIR --to PATH, or a snapshot of etcd",
                      "stop the trainers",
                      "stop the nodes, then the coordinators",
                      "replace all programs",
                      "start the coordinators, then the nodes",
                      "start the trainers"};
  }

  const ClusterFacts& facts_;
  const Version to_;
  const std::span<const ReleaseFormats> known_;
  const std::vector<Program> programs_;
  UpgradeVerdict verdict_;
};

}  // namespace

std::string_view NameOf(UpgradePath path) {
  switch (path) {
    case UpgradePath::kRolling:
      return "rolling";
    case UpgradePath::kStopped:
      return "stopped";
    case UpgradePath::kImpossible:
      return "no";
  }
  return "";
}

UpgradeVerdict CheckUpgrade(const ClusterFacts& facts, const Version& to,
                            std::span<const ReleaseFormats> known) {
  return UpgradeChecker(facts, to, known).Check();
}

}  // namespace embla::cli
