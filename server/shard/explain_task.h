// Explains one id of a ZCH table from the node's state, for operators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/table/device_executor.h"
#include "server/table/table_shard.h"

namespace embla {

struct IdExplanation {
  struct Eviction {
    std::uint64_t step = 0;       // When.
    std::uint64_t last_step = 0;  // Step of the id's latest touch before that.
    std::string reason;           // replaced, expired, idle or removed.
  };
  std::uint32_t device = 0;
  std::uint32_t bucket = 0;
  std::optional<std::int64_t> row;         // The id's own.
  std::optional<std::int64_t> shared_row;  // The reserved one that it shares while it has none.
  // State of the id's row:
  std::uint64_t last_step = 0;        // Its latest touch.
  std::uint32_t touches = 0;          // Policies lfu and distance_lfu.
  std::uint32_t expires_at_step = 0;  // Policy ttl.

  std::uint32_t seen = 0;             // Towards admission by count.
  std::uint32_t group_residents = 0;  // Ids with a row among the 64 that it may have.
  std::optional<Eviction> eviction;   // The last one, if its bucket still knows.
  // The bucket knows of no evictions before this step; 0: of all.
  std::uint64_t evictions_known_since = 0;
};
using ExplainDone = std::function<void(absl::StatusOr<IdExplanation>)>;

// Looks on all devices of the table; one of them may have the bucket.
class ExplainTask final : public DeviceTask {
 public:
  // Requires: a ZCH table.
  ExplainTask(std::shared_ptr<TableShard> shard, RowId id, ExplainDone done)
      : shard_(std::move(shard)), id_(id), done_(std::move(done)) {}

  void Run(std::uint32_t device) override;
  // FailedPrecondition: no device had it.
  void Finish() override;

 private:
  const std::shared_ptr<TableShard> shard_;
  const RowId id_;
  const ExplainDone done_;
  // Written by the one device that has the bucket.
  std::optional<absl::StatusOr<IdExplanation>> found_;
};

}  // namespace embla
