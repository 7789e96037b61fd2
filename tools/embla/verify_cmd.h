// embla verify: what the nodes really hold is what the plan says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/inspector.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct VerifyRequest {
  std::string table;
  // Its replica groups were averaged and not trained since: their copies must be equal.
  bool synced = false;
};

std::vector<Verb> VerifyVerbs();

// Looks at every unit of the table on every node. Findings are checked again, for some seconds:
// rows may be on their way while a job runs, and shortly after. DataLoss: something stays wrong;
// the output names each unit and says what to do. NotFound; Unavailable: a node does not answer.
absl::Status VerifyTableVerb(client::Admin& admin, client::Inspector& inspector,
                             const VerifyRequest& request, const std::function<void()>& pause,
                             const Output& output);

}  // namespace embla::cli
