// Tells the starter of a program where it listens: a JSON object in a file, there once the program
// is ready.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

namespace embla {

// Replaces `path` by {"listen": "127.0.0.1:7070", ...}; readers see all of it or none.
absl::Status WritePortFile(const std::string& path,
                           const std::map<std::string, std::string>& addresses);

}  // namespace embla
