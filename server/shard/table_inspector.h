// Reads a node's rows of a table, unit by unit: for operators who want to be sure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/given_up.h"
#include "server/shard/node_tables.h"
#include "server/table/device_executor.h"

namespace embla {

// One unit, or one copy of it, on one device: what InspectedUnit in proto/embla/v1/inspect.proto
// says of it, and in the same numbers.
struct UnitContent {
  enum class State : std::uint8_t { kServed = 1, kRetained = 2, kStaged = 3 };
  std::uint32_t row_granule = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::uint32_t replica_group = 0;
  std::uint32_t device = 0;
  State state = State::kServed;
  std::int64_t rows = 0;
  std::uint32_t crc32c = 0;
};

// Reads all rows of the table on the devices' threads, so requests go on in between: a unit that
// is updated meanwhile has a digest of no moment. Must not be called on a device thread.
// Cancelled: was given up.
absl::StatusOr<std::vector<UnitContent>> InspectTable(const NodeTable& table,
                                                      DeviceExecutors& executors, BufferPool& pool,
                                                      const GivenUp& given_up);

}  // namespace embla
