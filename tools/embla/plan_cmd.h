// embla plan ...
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "core/plan/plan.h"
#include "tools/embla/output.h"
#include "tools/embla/table_request.h"

namespace embla::cli {

// The cluster's current plan.
absl::StatusOr<Plan> FetchPlan(client::Admin& admin);
// NotFound lists the tables there are.
absl::StatusOr<const TablePlan*> FindTable(const Plan& plan, const std::string& name);

// The whole plan, or one table of it when `table` is not empty.
absl::Status PlanShowVerb(client::Admin& admin, const std::string& table, const Output& output);

// Nodes n0, n1, ... that need not exist.
struct StatedNodes {
  std::uint32_t nodes = 0;
  std::uint32_t devices_per_node = 1;
  std::int64_t device_memory_bytes = std::int64_t{64} << 30;

  absl::Status Validate() const;
};

// Shows what creating the tables would do, on stated nodes: no cluster is asked.
absl::Status PlanTableOfflineVerb(std::span<const TableRequest> requests, const StatedNodes& stated,
                                  const Output& output);
// The same on the live cluster, beside the tables that are there. Nothing is created.
absl::Status PlanTableVerb(client::Admin& admin, std::span<const TableRequest> requests,
                           const Output& output);

}  // namespace embla::cli
