// Prices of cuts: the one place where the planner's numbers come from. The solver, the checker and
// the brute force of the tests all ask here, so a plan is right or wrong against the same model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/planner/problem/problem.h"
#include "core/planner/problem/units.h"

namespace embla::planner {

// One way to cut a table: column blocks of `width` columns, each in `row_blocks` row blocks.
struct Cut {
  ShardingType type = ShardingType::kTableWise;
  Kernel kernel = Kernel::kDevice;
  std::uint32_t width = 0;
  std::uint32_t column_blocks = 1;
  // table_row_wise, grid_shard: devices of one host. row_wise: devices in all.
  // data_parallel: copies, one on each device.
  std::uint32_t row_blocks = 1;

  std::uint32_t shards() const { return column_blocks * row_blocks; }
  bool operator==(const Cut&) const = default;
};

// The parts of `Price::work`, in ms; their sum is the work, for the report.
enum class CostPart : std::uint8_t {
  kForwardCompute,
  kForwardComms,
  kBackwardCompute,
  kBackwardComms,
  kPrefetch
};
inline constexpr std::size_t kCostParts = 5;

// Every shard of a cut is charged the same: the largest shard's price.
struct Price {
  Ticks work = 0;           // Per shard, on a device with slowdown 1.
  Ticks host_work = 0;      // Per shard, on its host's shared network interface.
  TierBytes bytes{};        // Per shard, of the largest shard.
  TierBytes bytes_total{};  // Sum over all shards; at most shards() * bytes.
  std::array<double, kCostParts> parts_ms{};
};

// Pure and deterministic: IEEE + - * / on doubles, rounded once to integers.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Requires: a valid problem, and a cut that fits the table.
  virtual Price PriceOf(const Table& table, const Cut& cut) const = 0;
  virtual std::string_view name() const = 0;
};

// Time per step that a shard of `bytes` (weights and optimizer state) spends on averaging with its
// copies in the other replica groups, which lie on devices of the same host. 0 without groups.
double SyncMs(const Problem& problem, double bytes);

// `problem` is borrowed and outlives the model. With replica groups it is one group's share, and
// `problem.replicas` is their number (0 counts as 1).
std::unique_ptr<CostModel> MakeCostModel(const Problem& problem);

// Bytes of each device's memory that the reservation takes beside its fraction. O(tables).
double ReservedBytes(const Problem& problem);
// Bytes of device memory left for tables; never negative. `reserved` is ReservedBytes(problem).
std::int64_t UsableBytes(const Problem& problem, const Device& device, double reserved);

// Smallest divisor of `dim` that is a multiple of 4 and >= min_partition (0: 128), else dim.
std::uint32_t ColumnWidth(std::uint32_t dim, std::uint32_t min_partition);

}  // namespace embla::planner
