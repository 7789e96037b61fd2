// Exit codes of the process. Scripts rely on these numbers: they never change.
#pragma once

#include "absl/status/status.h"

namespace embla::cli {

enum class ExitCode : int {
  kOk = 0,
  kError = 1,
  kUsage = 2,        // The command line or a table file is wrong.
  kUnavailable = 3,  // The peer does not answer; try again.
  kNotFound = 4,     // No such table or node.
  kRefused = 5,      // Understood, and not possible: no room, exists already, wrong state.
};

ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace embla::cli
