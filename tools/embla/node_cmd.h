// embla node ...
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

// Verbs that start no job.
std::vector<Verb> NodeVerbs();

// `now` is what heartbeats are measured against.
absl::Status NodeListVerb(client::Admin& admin, absl::Time now, const Output& output);

// Takes a node that is down out of the cluster. The rows that are lost with it are shown first;
// without `lose_rows` there must be none. With `wait`, until the job is over.
absl::Status NodeForgetVerb(client::Admin& admin, const std::string& node, bool lose_rows,
                            bool wait, const Pause& pause, const Output& output);

}  // namespace embla::cli
