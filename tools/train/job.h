// A whole run: tables, epochs, test.
#pragma once

#include <iosfwd>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/clock.h"
#include "tools/train/inputs.h"
#include "tools/train/options.h"
#include "tools/train/progress.h"
#include "tools/train/report.h"

namespace embla::train {

// The services of a run. Nothing is owned; all of it outlives the call.
struct Environment {
  client::Admin& admin;
  std::vector<client::Client*> clients;  // One per trainer of this process.
  std::ostream& out;
  Progress& progress;
  const Clock& clock;
};

// Trains and tests. Aborted: the loss diverged. FailedPrecondition: a table exists and differs.
// InvalidArgument: no training examples, or a wrong option. Otherwise errors of the service.
absl::StatusOr<Report> RunJob(const RunOptions& options, Inputs& inputs, Environment& environment);

}  // namespace embla::train
