// embla lookup: a few rows, to look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/embla/output.h"

namespace embla::cli {

struct LookupFlags {
  std::string table;
  std::vector<std::int64_t> ids;
  std::string pooling = "none";     // none, sum or mean: the ids are one bag.
  std::uint32_t columns_max = 8;    // Shown in text; 0: all. JSON has all.
  std::uint32_t replica_group = 0;  // Group of the copy, for tables that have groups.
};

absl::Status LookupVerb(client::Client& client, const LookupFlags& flags, const Output& output);

}  // namespace embla::cli
