// The moves between two plans, shard by shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/planner/problem/machine.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/replan.h"

namespace embla::planner {

// One side of a comparison: the devices by name, as positions in a list both sides share.
struct Places {
  const Problem* problem = nullptr;  // Borrowed.
  Machine machine;
  std::vector<std::string> names;  // By device.
};
Places PlacesOf(const Problem& problem);

// Weights and optimizer state of the whole table.
std::int64_t StoredBytes(const Table& table);

// Devices of every shard of a choice, column block by column block; `table` gives the rules.
std::vector<std::uint32_t> ShardDevices(const Places& places, const Table& table,
                                        const Choice& choice);

// Appends the moves of one table, whose old and new choices are given. `allowed` tells by new
// device whether the table's rules allow it.
void AppendMoves(const Places& before, const Table& old_table, const Choice& old_choice,
                 const Places& after, std::uint32_t table, const Choice& new_choice,
                 std::vector<Move>* moves);

}  // namespace embla::planner
