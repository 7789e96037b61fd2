// The seven ways to tile a table (docs/ARCHITECTURE.md), and what planner and plans have to know of
// each. Routing, storage and migration know slices only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/enum_values.h"

namespace embla {

// The numbers stand in plans and on the wire: they never change.
enum class ShardingType : std::uint8_t {
  kDataParallel = 1,
  kTableWise = 2,
  kColumnWise = 3,
  kTableColumnWise = 4,
  kRowWise = 5,
  kTableRowWise = 6,
  kGridShard = 7,
};

struct ShardingTraits {
  std::string_view name;  // In JSON, flags and messages.
  // Rows are cut into blocks of columns.
  bool cuts_columns = false;
  // The devices of a host share the rows of a block.
  bool shares_hosts = false;
  // Every allowed device has a shard.
  bool is_everywhere = false;
  // The shards are copies of the whole table.
  bool has_copies = false;
  // The planner uses it where a rule names it, not where rules leave the type open.
  bool must_be_named = false;
  // Its place among the types that `auto` tries, the simplest first. 0: none.
  std::uint8_t auto_rank = 0;
};

// Empty for a number that is no type. The switch has no `default`, so that the compiler refuses a
// type that has no traits.
constexpr ShardingTraits TraitsOf(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel:
      return {.name = "data_parallel", .is_everywhere = true, .has_copies = true};
    case ShardingType::kTableWise:
      return {.name = "table_wise", .auto_rank = 1};
    case ShardingType::kColumnWise:
      return {.name = "column_wise", .cuts_columns = true, .auto_rank = 3};
    case ShardingType::kTableColumnWise:
      return {.name = "table_column_wise", .cuts_columns = true, .auto_rank = 2};
    case ShardingType::kRowWise:
      return {.name = "row_wise", .is_everywhere = true, .auto_rank = 5};
    case ShardingType::kTableRowWise:
      return {.name = "table_row_wise", .shares_hosts = true, .auto_rank = 4};
    case ShardingType::kGridShard:
      return {.name = "grid_shard",
              .cuts_columns = true,
              .shares_hosts = true,
              .must_be_named = true,
              .auto_rank = 6};
  }
  return {};
}

constexpr bool IsShardingType(ShardingType type) { return !TraitsOf(type).name.empty(); }

// Every type, by number.
inline constexpr auto kShardingTypes = EnumValues<ShardingType, &IsShardingType>();
static_assert(static_cast<std::size_t>(kShardingTypes.back()) == kShardingTypes.size());

// The types whose traits fit, by number.
template <typename Fits>
std::vector<ShardingType> TypesWhere(const Fits& fits) {
  std::vector<ShardingType> types;
  for (const ShardingType type : kShardingTypes) {
    if (fits(TraitsOf(type))) types.push_back(type);
  }
  return types;
}

}  // namespace embla
