// Decisions as records of a node's journal; the bytes are those of docs/journal_format.md.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

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
// A plan is written whole; EncodePlanDeltaRecord writes what differs from another. `memory` keeps
// what the decision views, and the record views it there; null: the record has copies.
DecisionRecord EncodeDecision(const Decision& decision,
                              std::shared_ptr<const void> memory = nullptr);

// Views `bytes`; `before` is the plan of the record of one before it. DataLoss: not such a record.
// Requires: bytes.data() is aligned to 8; IsDecision.
absl::StatusOr<Decision> DecodeDecision(JournalKind kind, std::span<const std::byte> bytes,
                                        const Plan& before);
bool IsDecision(JournalKind kind);

}  // namespace embla
