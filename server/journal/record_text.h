// The records of a node's journal in words, for operators who read a data directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/journal/journal_records.h"
#include "server/log/log_format.h"

namespace embla {

struct RecordText {
  std::string kind;  // A word of docs/journal_format.md.
  std::string text;
};

// Thread safety: none.
class RecordTexts {
 public:
  RecordTexts() = default;
  // For the records from a snapshot on, with its plan, and the processes that there were by then.
  RecordTexts(PlanPtr plan, std::uint64_t processes)
      : plan_(std::move(plan)), processes_(processes) {}

  // Describes the next record; takes all of a journal in order, since plans are written as changes
  // and name the tables of later records. Errors: DataLoss (not such a record), FailedPrecondition
  // (a newer program wrote it).
  absl::StatusOr<RecordText> Describe(const LogRecordView& record);

  // The plan after the last record.
  const Plan& plan() const { return *plan_; }
  // Processes that have opened the log.
  std::uint64_t processes() const { return processes_; }

 private:
  absl::StatusOr<std::string> TextOf(JournalKind kind, const SharedBuffer& memory);

  PlanPtr plan_ = std::make_shared<const Plan>();
  std::uint64_t processes_ = 0;
};

}  // namespace embla
