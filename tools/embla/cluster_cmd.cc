#include "tools/embla/cluster_cmd.h"

#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "server/state_store/state_directory.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

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

}  // namespace

std::vector<AdminVerb> ClusterVerbs() {
  return {{.name = "status", .help = "plan version, live nodes, tables", .run = ClusterStatusVerb}};
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
