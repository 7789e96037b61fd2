// The documents of the console, which docs/console.md lists field by field.
//
// Each is bounded, whatever the cluster is like: lists have a maximum, and say how much there is.
// Names and messages are told as they are; the page shows them as text only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/console/plan_picture.h"
#include "server/coordinator/coordinator.h"

namespace embla {

inline constexpr std::size_t kConsoleNodesMax = 512;
inline constexpr std::size_t kConsoleJobsMax = 20;
inline constexpr std::size_t kConsoleSessionsMax = 100;
inline constexpr std::size_t kConsoleTablesMax = 24;        // On a page.
inline constexpr std::size_t kConsoleThumbnailMax = 96;     // Rectangles of a table on a page,
inline constexpr std::size_t kConsoleRectanglesMax = 2048;  // and of one that is looked at.
inline constexpr std::size_t kConsoleRowsMax = 200;         // Entries of other lists.

// The part that the coordinator's thread copies.
struct ConsoleFacts {
  ClusterView cluster;
  std::vector<NodeView> nodes;
  std::vector<JobView> jobs;  // The newest, without moves.
  std::vector<SessionView> sessions;
  PlanPtr plan;
  absl::Time now;  // By the clock of heartbeats.
};

// state.json
std::string StateJson(const ConsoleFacts& facts, const PlanSums& sums, absl::Time wall_clock);

struct StandbyFacts {
  std::string coordinator = {};  // The leader's addresses; empty: there is none at present.
  std::string admin = {};
  std::string console = {};  // The URL of its console; empty: not known.
};
// state.json of a coordinator that does not lead.
std::string StandbyJson(const StandbyFacts& facts, absl::Time wall_clock);

struct TablesQuery {
  std::string match = {};  // Part of the names; empty: any.
  std::size_t from = 0;    // How many to leave out.
};
// tables.json: a page of the tables that match, the largest first.
std::string TablesJson(const PlanSums& sums, const TablesQuery& query);

// table.json. `job` is the running one, with its moves, or null. NotFound; InvalidArgument: no such
// copy.
absl::StatusOr<std::string> TableJson(const PlanSums& sums, TableId table, std::size_t copy,
                                      const JobView* job);

// device.json. NotFound.
absl::StatusOr<std::string> DeviceJson(const Plan& plan, DeviceId device);

// job.json, with the first of its moves.
std::string JobJson(const JobView& job, const Plan& plan);

// audit.json: `lines` of an audit log, the last ones and the newest first. Lines that are none are
// left out.
std::string AuditJson(std::string_view lines);

}  // namespace embla
