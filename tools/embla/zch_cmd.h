// embla table survey, sweep and evictions: what becomes of the ids of ZCH tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/embla/output.h"

namespace embla::cli {

absl::Status TableSurveyVerb(client::Client& client, const std::string& table,
                             const Output& output);

absl::Status TableSweepVerb(client::Client& client, const std::string& table,
                            const client::SweepOptions& options, const Output& output);

// An eviction per line; with -o json a JSON document per line, with weights and state. With
// `follow` until the output fails.
absl::Status TableEvictionsVerb(client::Client& client, const std::string& table, bool follow,
                                const Output& output);
// The JSON lines, appended to a file. InvalidArgument: it cannot be written.
absl::Status TableEvictionsToFile(client::Client& client, const std::string& table, bool follow,
                                  const std::string& path);

}  // namespace embla::cli
