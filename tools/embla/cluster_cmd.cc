#include "tools/embla/cluster_cmd.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/build_version.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "server/state_store/state_directory.h"
#include "tools/embla/doctor_cluster.h"
#include "tools/embla/release_formats.h"
#include "tools/embla/text_table.h"
#include "tools/embla/upgrade_check.h"

namespace embla::cli {
namespace {

const char* Words(UpgradePath path) {
  switch (path) {
    case UpgradePath::kRolling:
      return "one process after the other, while it trains";
    case UpgradePath::kStopped:
      return "all programs at once: the protocol is another one";
    case UpgradePath::kImpossible:
      return "no";
  }
  return "";
}

void Put(const StateCopy& copy, const std::string& to, const std::string& what,
         const Output& output) {
  if (output.json) {
    output.PutJson({{"directory", to},
                    {"revision", ToInt(copy.revision)},
                    {"keys", copy.keys},
                    {"cluster_key", copy.has_cluster_key}});
    return;
  }
  output.out << what << " " << to << ": revision " << ToInt(copy.revision) << ", " << copy.keys
             << " keys, "
             << (copy.has_cluster_key ? "the cluster's key"
                                      : "without a key: keep the "
                                        "file of --cluster-key with it")
             << "\n";
}

void ShowUpgrade(const UpgradeVerdict& verdict, const Version& to, const Output& output) {
  if (output.json) {
    nlohmann::ordered_json issues = nlohmann::ordered_json::array();
    for (const UpgradeIssue& issue : verdict.issues) {
      issues.push_back({{"where", issue.where}, {"what", issue.what}, {"what_to_do", issue.next}});
    }
    output.PutJson({{"to_version", to.text()},
                    {"possible", NameOf(verdict.path)},
                    {"now", verdict.issues.empty()},
                    {"issues", issues},
                    {"steps", verdict.steps}});
    return;
  }
  output.out << "to " << to.text() << ": " << Words(verdict.path) << "\n";
  for (const UpgradeIssue& issue : verdict.issues) {
    output.out << "not now: " << issue.where << ": " << issue.what << "\n"
               << "    what to do: " << issue.next << "\n";
  }
  int number = 0;
  for (const std::string& step : verdict.steps) output.out << ++number << ". " << step << "\n";
}

}  // namespace

std::vector<Verb> ClusterVerbs() {
  const auto to = std::make_shared<std::string>();
  return {
      {.name = "status", .help = "plan version, live nodes, tables", .run = ClusterStatusVerb},
      {.name = "upgrade-check",
       .help = "whether its programs may be replaced by another version now, and how",
       .arguments = {{"--to-version", "as 0.2.1; default: that of this program", to.get(), false}},
       .run = [to](client::Admin& admin, const Output& output) {
         return UpgradeCheckVerb(admin, *to, output);
       }}};
}

absl::Status UpgradeCheckVerb(client::Admin& admin, const std::string& to_version,
                              const Output& output) {
  const std::string stated = to_version.empty() ? std::string(BuildVersion()) : to_version;
  const std::optional<Version> to = ParseVersion(stated);
  if (!to.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--to-version ", stated, " is not like 0.2.1"));
  }
  EMBLA_ASSIGN_OR_RETURN(const ClusterFacts facts, ClusterFacts::Ask(admin));
  const UpgradeVerdict verdict = CheckUpgrade(facts, *to, KnownReleases());
  ShowUpgrade(verdict, *to, output);
  if (verdict.issues.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(verdict.path == UpgradePath::kImpossible
                                           ? "not to this version"
                                           : "not now: see to what is named above first");
}

absl::Status ClusterStatusVerb(client::Admin& admin, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::ClusterStatus status,
                         admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()));
  const absl::Time started = absl::FromUnixMillis(status.started_unix_ms());
  if (output.json) {
    output.PutJson({{"cluster_id", status.cluster_id()},
                    {"version", status.version()},
                    {"started", TimeView(started)},
                    {"plan_version", status.plan_version()},
                    {"nodes_live", status.nodes_live()},
                    {"nodes_total", status.nodes_total()},
                    {"tables", status.tables()},
                    {"tables_aside", status.tables_aside()},
                    {"generation", status.generation()}});
    return absl::OkStatus();
  }
  output.out << "cluster       " << status.cluster_id() << "\n"
             << "coordinator   version " << status.version() << ", started " << TimeText(started)
             << "\n"
             << "plan version  " << status.plan_version() << "\n"
             << "nodes         " << status.nodes_live() << " live of " << status.nodes_total()
             << "\n"
             << "tables        " << status.tables();
  if (status.tables_aside() > 0) {
    output.out << ", and " << status.tables_aside() << " kept aside: embla table ls --aside";
  }
  output.out << "\n";
  if (status.generation() > 1) {
    output.out << "generation    " << status.generation()
               << ": the state has gone back in time; see embla plan history\n";
  }
  return absl::OkStatus();
}

absl::Status ClusterBackupVerb(const std::string& state_directory, const std::string& to,
                               const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const StateCopy copy, CopyStateDirectory(state_directory, to));
  Put(copy, to, "backed up to", output);
  return absl::OkStatus();
}

absl::Status ClusterRestoreVerb(const std::string& from, const std::string& state_directory,
                                const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const StateCopy copy, CopyStateDirectory(from, state_directory));
  Put(copy, state_directory, "restored to", output);
  return absl::OkStatus();
}

}  // namespace embla::cli
