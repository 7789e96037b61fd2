// embla cluster ...
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

std::vector<Verb> ClusterVerbs();

// Whether the cluster may be brought to another version now, and in which order; empty: to this
// program's. FailedPrecondition: not now, or not at all.
absl::Status UpgradeCheckVerb(client::Admin& admin, const std::string& to_version,
                              const Output& output);
absl::Status ClusterStatusVerb(client::Admin& admin, const Output& output);

// On the coordinator's machine, whether it runs or not. Errors of CopyStateDirectory.
absl::Status ClusterBackupVerb(const std::string& state_directory, const std::string& to,
                               const Output& output);
// Before the coordinator is started. The same errors.
absl::Status ClusterRestoreVerb(const std::string& from, const std::string& state_directory,
                                const Output& output);

}  // namespace embla::cli
