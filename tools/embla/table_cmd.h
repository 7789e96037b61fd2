// embla table ...
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "tools/embla/output.h"

namespace embla::cli {

// Lists the tables that are served, or (`aside`) those that are kept aside.
absl::Status TableListVerb(client::Admin& admin, bool aside, const Output& output);

// Everything that is known of one table. NotFound lists the tables there are.
absl::Status TableDescribeVerb(client::Admin& admin, const std::string& name, const Output& output);

// Drops the table with all its rows. Unless `yes`, asks on `output` and reads the answer from `in`;
// Cancelled when it is not "yes".
absl::Status TableDropVerb(client::Admin& admin, const std::string& name, bool yes,
                           std::istream& in, const Output& output);

// Drops a table that is kept aside; asks nothing.
absl::Status TableDropAsideVerb(client::Admin& admin, std::uint32_t id, const Output& output);

// Serves a table again that is kept aside.
absl::Status TableAdoptVerb(client::Admin& admin, const std::string& name, std::uint32_t id,
                            const Output& output);

// A node gives up rows of units of the table that it keeps aside, another node's by their records.
absl::Status TableDropLeftoversVerb(client::Admin& admin, const std::string& table,
                                    const std::string& node, const Output& output);

// `assignments` are "key=value", keys as in docs/plan_format.md.
absl::Status TableSetVerb(client::Admin& admin, const std::string& name,
                          const std::vector<std::string>& assignments, const Output& output);

// Averages the replica groups of the tables, of all tables when none is named, now.
absl::Status TableSyncVerb(client::Client& client, const std::vector<std::string>& names,
                           const Output& output);

}  // namespace embla::cli
