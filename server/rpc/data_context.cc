#include "server/rpc/data_context.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/rpc/access_rules.h"

namespace embla {

absl::Status DataServiceOptions::Validate() const {
  if (deadline_default <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("deadline_default must be positive");
  }
  if (stream_requests_max == 0 || read_threads == 0 || reads_queued_max == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream_requests_max ", stream_requests_max, ", read_threads ", read_threads,
                     " and reads_queued_max ", reads_queued_max, " must be at least 1"));
  }
  return absl::OkStatus();
}

DataContext::DataContext(ShardNode& node, BufferPool& pool, Metrics* metrics,
                         const DataServiceOptions& options)
    : node(node),
      pool(pool),
      options(options),
      clock(Clock::Real()),
      shard(metrics),
      in_flight(options.in_flight, shard.held_bytes),
      lookup(metrics, MethodMetrics::Side::kServer, "Lookup"),
      update(metrics, MethodMetrics::Side::kServer, "Update"),
      read_rows(metrics, MethodMetrics::Side::kServer, "ReadRows"),
      replicate(metrics, MethodMetrics::Side::kServer, "Replicate"),
      sync(metrics, MethodMetrics::Side::kServer, "Sync"),
      move(metrics, MethodMetrics::Side::kServer, "Move") {}

absl::Status DataContext::CheckTables(const std::optional<Identity>& caller,
                                      std::span<const TableId> tables) const {
  if (!caller.has_value()) return absl::OkStatus();
  const PlanPtr plan = node.plan();
  for (const TableId table : tables) EMBLA_RETURN_IF_ERROR(CheckTable(caller, *plan, table));
  return absl::OkStatus();
}

absl::Status DataContext::CheckTables(const std::optional<Identity>& caller,
                                      const LookupBatch& batch) const {
  if (!caller.has_value()) return absl::OkStatus();
  std::vector<TableId> tables;
  for (const LookupPart& part : batch.parts) tables.push_back(part.table);
  return CheckTables(caller, tables);
}

absl::Status DataContext::CheckTables(const std::optional<Identity>& caller,
                                      const UpdateBatch& batch) const {
  if (!caller.has_value()) return absl::OkStatus();
  std::vector<TableId> tables;
  for (const UpdatePart& part : batch.parts) tables.push_back(part.table);
  if (batch.claim.has_value()) tables.push_back(batch.claim->table);
  return CheckTables(caller, tables);
}

void DataContext::Count(MethodMetrics& method, const absl::Status& status, absl::Time start,
                        std::size_t request_bytes, std::size_t reply_bytes) const {
  method.Record(status.code(), clock.Now() - start, request_bytes, reply_bytes);
}

}  // namespace embla
