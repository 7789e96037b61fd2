// embla table create: all tables of a file by one change of the plan.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/table_request.h"

namespace embla::cli {

struct CreateFlags {
  bool if_not_exists = false;
  absl::Duration look_every = absl::Milliseconds(500);  // Pause between two looks at the progress.
};

// Creates all of the tables or none, shows what that waits for, and then how they were cut.
// FailedPrecondition (`if_not_exists`): tables exist and differ; names each difference.
absl::Status TableCreateVerb(client::Admin& admin, std::span<const TableRequest> requests,
                             const CreateFlags& flags, const Output& output);

// Creates all of the tables or none, and unless `output` is JSON shows what that waits for.
absl::StatusOr<v1::CreateTablesReply> CreateTables(client::Admin& admin,
                                                   std::span<const TableRequest> requests,
                                                   const CreateFlags& flags, const Output& output);

}  // namespace embla::cli
