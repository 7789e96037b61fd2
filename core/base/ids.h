// Ids are types: swapping two of them does not compile. DESIGN words: docs/ARCHITECTURE.md.
#pragma once

#include <compare>
#include <cstdint>
#include <type_traits>

namespace embla {

enum class RowId : std::int64_t {};         // A row of a table, 0..rows-1 in dense tables.
enum class TableId : std::uint32_t {};      // Never reused within a cluster; 0 is no table.
enum class NodeId : std::uint32_t {};       // A shard server, stable across its restarts.
enum class PlanVersion : std::uint64_t {};  // +1 at each change of the plan; 0 is no plan.
enum class SessionId : std::uint64_t {};    // One process of a trainer; 0 is no session.
enum class UpdateSeq : std::uint64_t {};    // A session's updates, from 1.
enum class Rank : std::uint32_t {};         // A trainer of a table with synchronous steps.
enum class Slot : std::uint32_t {};         // A row's position inside one slice's store.

// A device of a node: `index` counts from 0 within the node.
struct DeviceId {
  NodeId node{};
  std::uint32_t index = 0;
  auto operator<=>(const DeviceId&) const = default;
};

template <typename Id>
requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> ToInt(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace embla
