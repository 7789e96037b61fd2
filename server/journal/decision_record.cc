#include "server/journal/decision_record.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/journal/copied_record.h"
#include "server/journal/record_bytes.h"
#include "server/journal/update_record.h"

namespace embla {
namespace {

class Encoder {
 public:
  explicit Encoder(RecordWriter& out) : out_(out) {}

  JournalKind operator()(const DecidedUpdate& update) const {
    PutUpdate(update, out_);
    return update.batch.is_step ? JournalKind::kStep : JournalKind::kUpdate;
  }
  JournalKind operator()(const DecidedSync& sync) const {
    PutAveraged(sync, out_);
    return JournalKind::kAveraged;
  }
  JournalKind operator()(const DecidedSweep& sweep) const {
    PutSweep(sweep, out_);
    return JournalKind::kSweep;
  }
  JournalKind operator()(const ClosedSessions& closed) const {
    out_.PutBytes(EncodeClosedSessionsRecord(closed));
    return JournalKind::kClosedSessions;
  }
  JournalKind operator()(const InstalledPlan& installed) const {
    out_.PutBytes(EncodePlanDeltaRecord(installed.self, DeltaBetween(Plan(), *installed.plan)));
    return JournalKind::kPlanDelta;
  }
  JournalKind operator()(const DecidedBefore&) const { return JournalKind::kBefore; }
  JournalKind operator()(const auto& of_copy) const {
    PutCopied(of_copy, out_);
    return JournalKind::kCopied;
  }

 private:
  RecordWriter& out_;
};

// Keeps what `decision` views; null: it views nothing, or whoever made it keeps that.
std::shared_ptr<const void> MemoryOf(const Decision& decision) {
  if (const auto* const update = std::get_if<DecidedUpdate>(&decision)) {
    return update->batch.memory.memory();
  }
  if (const auto* const update = std::get_if<CopiedUpdate>(&decision)) {
    return update->batch.memory.memory();
  }
  const auto* const rows = std::get_if<CopiedRows>(&decision);
  return rows == nullptr ? nullptr : rows->row_block.memory();
}

absl::StatusOr<Decision> DecodeDecidedBefore(std::span<const std::byte> bytes) {
  if (bytes.empty()) return DecidedBefore();
  return absl::DataLossError(
      absl::StrCat("a record of what was decided before has ", bytes.size(), " bytes, not 0"));
}

}  // namespace

DecisionRecord EncodeDecision(const Decision& decision) {
  std::shared_ptr<const void> memory = MemoryOf(decision);
  RecordWriter out = memory == nullptr ? RecordWriter(kRecordHeaderBytes)
                                       : RecordWriter::OfViews(std::move(memory));
  const JournalKind kind = std::visit(Encoder(out), decision);
  return {kind, std::move(out).TakePayload()};
}

bool IsDecision(JournalKind kind) {
  return kind == JournalKind::kUpdate || kind == JournalKind::kStep ||
         kind == JournalKind::kBefore || kind == JournalKind::kCopied ||
         kind == JournalKind::kAveraged || kind == JournalKind::kSweep ||
         kind == JournalKind::kClosedSessions || kind == JournalKind::kPlan ||
         kind == JournalKind::kPlanDelta;
}

absl::StatusOr<Decision> DecodeDecision(JournalKind kind, const SharedBuffer& memory,
                                        const Plan& before) {
  if (kind == JournalKind::kUpdate) return DecodeUpdateRecord(memory);
  if (kind == JournalKind::kStep) return DecodeStepRecord(memory);
  if (kind == JournalKind::kCopied) return DecodeCopiedRecord(memory);
  const std::span<const std::byte> bytes = memory.bytes();
  if (kind == JournalKind::kBefore) return DecodeDecidedBefore(bytes);
  if (kind == JournalKind::kAveraged) return DecodeAveragedRecord(bytes);
  if (kind == JournalKind::kSweep) return DecodeSweepRecord(bytes);
  if (kind == JournalKind::kClosedSessions) return DecodeClosedSessionsRecord(bytes);
  if (kind == JournalKind::kPlan) return DecodePlanRecord(bytes);
  return DecodePlanDeltaRecord(bytes, before);
}

}  // namespace embla
