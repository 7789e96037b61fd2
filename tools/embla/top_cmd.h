// embla top: the cluster's load, drawn anew every few seconds.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

std::vector<Verb> TopVerbs();

// Waits until it is time for the next look, and returns whether there is to be one. Calls `draw`
// when the terminal has another size.
using TopPause = std::function<bool(const std::function<void()>& draw)>;

// Shows the load until `pause` says that it is enough. Errors are those of the first look; after a
// later one the last figures stay, with the reason.
absl::Status TopVerb(client::Admin& admin, const TopPause& pause, const Output& output);

}  // namespace embla::cli
