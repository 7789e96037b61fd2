// Decisions as records of a node's journal; the bytes are those of docs/journal_format.md.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/journal/journal_records.h"
#include "server/log/log_format.h"
#include "server/shard/decision.h"

namespace embla {

struct DecisionRecord {
  JournalKind kind;
  LogPayload payload;
};
// A plan is written whole; EncodePlanDeltaRecord writes what differs from another. The record views
// large arrays where the decision has them, and keeps its memory; without that it has copies.
DecisionRecord EncodeDecision(const Decision& decision);

// `bytes` are the decision's memory; `before` is the plan of the record of one before it. DataLoss:
// not such a record. Requires: bytes.data() is aligned to 8; IsDecision.
absl::StatusOr<Decision> DecodeDecision(JournalKind kind, const SharedBuffer& bytes,
                                        const Plan& before);
bool IsDecision(JournalKind kind);

}  // namespace embla
