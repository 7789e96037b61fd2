#include "server/rpc/data_context.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/retry_hint.h"
#include "core/base/status_macros.h"
#include "server/rpc/access_rules.h"

namespace embla {
namespace {

constexpr absl::Duration kHintMin = absl::Milliseconds(10);
constexpr absl::Duration kHintMax = absl::Seconds(1);
constexpr double kMeanWeight = 1.0 / 64;  // The newest request has it.

}  // namespace

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
      quotas(options.trainer_quotas, metrics),
      traces(node, shard.trace_lines_dropped),
      lookup(metrics, MethodMetrics::Side::kServer, "Lookup"),
      update(metrics, MethodMetrics::Side::kServer, "Update"),
      read_rows(metrics, MethodMetrics::Side::kServer, "ReadRows"),
      replicate(metrics, MethodMetrics::Side::kServer, "Replicate"),
      sync(metrics, MethodMetrics::Side::kServer, "Sync"),
      move(metrics, MethodMetrics::Side::kServer, "Move") {}

absl::Status DataContext::TakeMove(PeerMessage message) const {
  if (!move_inbox) return absl::UnimplementedError("this node takes no part in moves");
  return move_inbox(std::move(message));
}

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

absl::Status DataContext::CheckPeer(const wire::PeerProof& proof,
                                    const std::optional<Identity>& caller) const {
  if (peers == nullptr) return absl::PermissionDeniedError("this node has no peers");
  EMBLA_RETURN_IF_ERROR(peers->Check(proof));
  return CheckName(caller, "node", proof.node);
}

absl::StatusOr<Admission> DataContext::Admit(const std::optional<Identity>& caller,
                                             const InFlightHolder& holder, std::size_t rows,
                                             std::size_t bytes) {
  Admission admission;
  EMBLA_ASSIGN_OR_RETURN(admission.memory, in_flight.Take(holder, bytes));
  EMBLA_ASSIGN_OR_RETURN(admission.quota, quotas.Take(caller, holder, rows, bytes, clock.Now()));
  return admission;
}

absl::Status DataContext::Answer(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status) || RetryAfterOf(status) > absl::ZeroDuration()) {
    return status;
  }
  const absl::Duration mean = absl::Seconds(mean_seconds.load(std::memory_order_relaxed));
  return WithRetryAfter(status, std::clamp(mean, kHintMin, kHintMax));
}

void DataContext::Count(MethodMetrics& method, const absl::Status& status, absl::Time start,
                        std::size_t request_bytes, std::size_t reply_bytes) const {
  const absl::Duration took = clock.Now() - start;
  method.Record(status.code(), took, request_bytes, reply_bytes);
  if (!status.ok()) return;
  // Where two threads meet, one of their requests is left out.
  const double mean = mean_seconds.load(std::memory_order_relaxed);
  mean_seconds.store(mean + (absl::ToDoubleSeconds(took) - mean) * kMeanWeight,
                     std::memory_order_relaxed);
}

}  // namespace embla
