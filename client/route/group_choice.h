// Chooses the replica group of a table that a client trains and reads (2D parallelism).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/plan/replica_groups.h"
#include "core/plan/table_spec.h"

namespace embla::client {

struct GroupChoice {
  std::optional<std::uint32_t> stated = {};  // By the trainer; else its session's turn decides.
  std::uint64_t turn = 0;

  // InvalidArgument: the table has groups, but not the stated one. Tables without have group 0.
  absl::StatusOr<std::uint32_t> Of(const TableSpec& table) const {
    if (table.replica_groups == 1) return 0;
    if (!stated.has_value()) return GroupOfSession(table, turn);
    EMBLA_RETURN_IF_ERROR(CheckGroup(table, *stated));
    return *stated;
  }
};

}  // namespace embla::client
