// A node's journal: its records in one log (server/log), and the node as it was when the log was
// last written. docs/journal_format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/journal/journal_metrics.h"
#include "server/log/node_log.h"
#include "server/shard/journal.h"
#include "server/shard/shard_node.h"

namespace embla {

struct NodeJournalOptions {
  // Updates are answered when their records have come so far. At kNone updates are not written:
  // tables, hyper-parameters and moves are.
  Durability level = Durability::kWritten;
  NodeLogOptions log;
};

// What a start found.
struct JournalRecovery {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  // Of their content.
  std::uint64_t updates = 0;
  std::uint64_t incarnation = 0;  // Processes that opened the log, this one included.
  absl::Duration took;
};

class NodeJournal final : public Journal {
 public:
  // Makes `node`, which is new, what the log in `storage` says, and writes its changes there from
  // now on. Neither is owned; both outlive the journal: destroy it after the node's last request.
  // `metrics` may be null. Errors: those of NodeLog::Open; DataLoss (a record that does not fit
  // those before it); FailedPrecondition (of a newer program, or of a node with other devices);
  // ResourceExhausted (less memory than before).
  static absl::StatusOr<std::unique_ptr<NodeJournal>> Open(LogStorage& storage,
                                                           const NodeJournalOptions& options,
                                                           ShardNode& node, Metrics* metrics);

  absl::Status AppendUpdate(const DecidedUpdate& update, Done done) override;
  absl::Status AppendMarker(Done done) override;
  absl::Status AppendSync(std::span<const TableId> tables, Done done) override;
  absl::Status WritePlan(const Plan& plan, NodeId self) override;

  const JournalRecovery& recovery() const { return recovery_; }
  // Writes and syncs all of it, and ends. As NodeLog::Close.
  absl::Status Close() { return log_->Close(); }

 private:
  NodeJournal(const NodeJournalOptions& options, Metrics* metrics)
      : options_(options), metrics_(metrics) {}
  absl::Status Append(JournalKind kind, std::string_view payload, Done done);

  const NodeJournalOptions options_;
  const JournalMetrics metrics_;
  JournalRecovery recovery_;
  std::unique_ptr<NodeLog> log_;
};

}  // namespace embla
