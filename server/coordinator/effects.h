// Work that the coordinator's logic leaves to its transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/plan/plan.h"
#include "server/coordinator/session_registry.h"
#include "server/migration/move_orders.h"

namespace embla {

enum class ChangeId : std::uint64_t {};  // A creation of tables in this coordinator's life.

struct CreatedTable {
  TablePtr table;
  bool existed = false;  // Before it was asked for.
};

// Send to every linked node and to every watcher. A receiver may skip to the newest.
struct PublishPlan {
  PlanPtr plan;
};

// Answer the callers that wait for this change; after a restart there may be none.
struct CompleteChange {
  ChangeId id{};
  absl::Status status;
  std::vector<CreatedTable> tables;  // When OK: all, in the order in which they were asked for.
  PlanVersion plan_version{};        // Version of the current plan.
  // Nodes that got no slices since they are away, and why: "node n1: down".
  std::vector<std::string> left_out = {};
};

// Tell a node about units; may be dropped.
struct SendOrders {
  NodeId node{};
  std::vector<UnitOrder> orders;
};

// Send to every linked node: each needs all of it, in order.
struct PublishSessions {
  SessionNews news;
};

// Tell a node what it is to keep (directory_records.h); may be dropped.
struct SendTestimony {
  NodeId node{};
  std::string testimony;
};

// Tell a node that it may answer everybody; sent again after each registration.
struct LetServe {
  NodeId node{};
};

// Tell a node the least level that it is to log; may be dropped.
struct SendLogLevel {
  NodeId node{};
  LogLevel level = LogLevel::kInfo;
};

using Effect = std::variant<PublishPlan, CompleteChange, SendOrders, PublishSessions, SendTestimony,
                            LetServe, SendLogLevel>;

struct ChangeProgress {
  bool queued = false;                   // Another change runs first; nothing is planned yet.
  PlanVersion plan_version{};            // The version that brought the tables, unless queued.
  std::size_t nodes = 0;                 // Nodes that hold a slice of one of the tables,
  std::vector<std::string> waiting_for;  // and the names of those that have not installed them.
  bool operator==(const ChangeProgress&) const = default;
};

}  // namespace embla
