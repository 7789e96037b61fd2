// A node's past: the highest numbers seen. A store that is behind it has gone back in time.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/ids.h"
#include "server/state_store/state_store.h"

namespace embla {

struct NodePast {
  std::string directory_id = {};   // Random, made with the directory. Empty: without a directory.
  NodeId node{};                   // Given by the coordinator; 0: never registered.
  std::uint64_t generation = 0;    // Highest generation of the coordinator's store seen.
  PlanVersion plan_version{};      // The highest seen.
  TableId table{};                 // The highest seen.
  Revision store_revision{};       // Highest revision of the coordinator's store seen.
  std::uint64_t log_position = 0;  // LSN of the end of the node's log.
  std::uint64_t process = 0;       // How often the directory was opened, this time counted.
  bool operator==(const NodePast&) const = default;
};

}  // namespace embla
