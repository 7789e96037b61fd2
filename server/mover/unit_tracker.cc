#include "server/mover/unit_tracker.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "server/migration/step_session.h"

namespace embla {
namespace {

// Whether the action belongs to an update, which changes no file: the rows are written where the
// update was decided.
bool IsOfUpdate(const NodeAction& action) {
  const auto* const log = std::get_if<LogAction>(&action);
  return std::holds_alternative<WriteRows>(action) ||
         (log != nullptr && std::holds_alternative<AppliedUpdate>(log->record));
}

}  // namespace

UnitTracker::UnitTracker(const UnitContext& context, const Clock& clock)
    : context_(context),
      clock_(clock),
      state_(Recovered(UnitDurable(), {}, context.chunks)),
      staging_(context.chunks, Lsn{0}) {}

void UnitTracker::Adopt(UnitEpoch epoch, UnitWindows windows, Lsn lsn) {
  UnitDurable durable = FreshUnit(context_.chunks, lsn);
  durable.epoch = epoch;
  durable.windows = std::move(windows);
  state_ = Recovered(std::move(durable), {}, context_.chunks);
  // Holds for every move that brought it here, in an earlier process or a plan.
  state_.is_covered = true;
  is_adopted_ = true;
}

bool UnitTracker::MayFold() const { return IsAtRest() && !is_folded() && !HasRoom(); }

bool UnitTracker::HasRoom() const {
  return reserves_open_ > 0 || has_memory_ || state_.reserving != MoveId{0} ||
         state_.durable.import.has_value();
}

RestoredUnit UnitTracker::Logged(const UnitId& unit) const {
  return {.unit = unit,
          .durable = state_.durable,
          .staged = state_.staged,
          .has_memory = state_.durable.import.has_value(),
          .folded = folded_,
          .run = {}};
}

UnitWindows UnitTracker::Fold(PlanVersion plan) {
  EMBLA_CHECK(MayFold());
  folded_ = plan;
  return std::exchange(state_.durable.windows, UnitWindows());
}

void UnitTracker::TakeBack(UnitWindows windows) {
  EMBLA_CHECK(is_folded());
  folded_ = PlanVersion{};
  state_.durable.windows = std::move(windows);
}

void UnitTracker::Restore(UnitDurable durable, ChunkVersions staged, PlanVersion folded) {
  folded_ = folded;
  has_memory_ = durable.import.has_value();
  state_ = Recovered(std::move(durable), std::move(staged), context_.chunks);
  state_.is_covered = Owns(state_);  // By the log that it was restored from.
}

UnitTracker::Stepped UnitTracker::Step(const NodeEvent& event) {
  Stepped stepped;
  // Memory that was given back before it came: a later answer counts.
  const bool is_reserved = std::holds_alternative<ReservedEvent>(event);
  const bool is_stale = is_reserved && --reserves_open_ > 0;
  if (!is_stale && !IsOfCutBeforeRest(event)) {
    WakeBefore(event);
    RunStep(event, stepped.actions);
  }
  NoteMemory(stepped.actions);
  stepped.status = Status();
  return stepped;
}

// The protocol knows of memory only when it has become an import. Memory from an earlier move may
// be on another device.
void UnitTracker::NoteMemory(std::vector<NodeAction>& actions) {
  const auto reserves = [](const NodeAction& action) {
    return std::holds_alternative<ReserveImport>(action);
  };
  if (has_memory_) {
    const auto first = std::find_if(actions.begin(), actions.end(), reserves);
    if (first != actions.end()) actions.insert(first, DiscardStaged{});
  }
  for (const NodeAction& action : actions) {
    if (reserves(action)) {
      ++reserves_open_;
      has_memory_ = true;
    }
    if (std::holds_alternative<DiscardStaged>(action) ||
        std::holds_alternative<InstallStaged>(action) ||
        std::holds_alternative<RelocateRows>(action)) {
      has_memory_ = false;
    }
  }
  if (!has_memory_ || state_.reserving != MoveId{0} || state_.durable.import.has_value()) return;
  has_memory_ = false;
  actions.emplace_back(DiscardStaged{});
}

void UnitTracker::RunStep(const NodeEvent& event, std::vector<NodeAction>& actions) {
  NodeStep step = StepNode(context_, std::move(state_), event);
  state_ = std::move(step.state);
  actions = std::move(step.actions);
  WakeIfOpened(state_.seen);
  RestIfEnded();
}

bool UnitTracker::IsOfCutBeforeRest(const NodeEvent& event) const {
  const auto* const holds = std::get_if<HoldsEvent>(&event);
  return holds != nullptr && Owns(state_) && holds->holds.move != awake_for_;
}

// A pull may come before the record that opened the move.
void UnitTracker::WakeBefore(const NodeEvent& event) {
  if (const auto* const pull = std::get_if<PullEvent>(&event)) {
    WakeFor(pull->pull.epoch, pull->pull.move);
  }
}

void UnitTracker::WakeIfOpened(const UnitRecord& record) {
  // A move within the node looks at nothing: updates go on as at rest.
  const bool is_open =
      record.phase == MovePhase::kOpen && record.owner == context_.self && !IsWithinNode(record);
  if (is_open) WakeFor(record.epoch, record.move);
}

void UnitTracker::WakeFor(UnitEpoch epoch, MoveId move) {
  UnitDurable& durable = state_.durable;
  if (!Owns(state_) || IsFrozen(state_) || epoch != durable.epoch) return;
  if (move < durable.min_move || move <= awake_for_) return;
  // A target that has not heard of the end goes on pulling: were each of its pulls answered by all
  // chunks anew, it would never stop to ask.
  if (SaysAborted(state_.seen, move)) return;
  awake_for_ = move;
  averaged_ = Lsn{0};
  durable.lsn = Next(durable.lsn);
  std::fill(durable.touched.begin(), durable.touched.end(), durable.lsn);
  state_.written = durable.lsn;
}

void UnitTracker::RestIfEnded() {
  if (IsAsleep()) return;
  const bool is_ended =
      awake_for_ < state_.durable.min_move || SaysAborted(state_.seen, awake_for_);
  if (!Owns(state_) || (is_ended && !IsFrozen(state_))) awake_for_ = MoveId{0};
}

bool UnitTracker::WantsRows(const Chunk& chunk) {
  if (!IsReceiving(state_, chunk.move)) return false;
  if (chunk.chunk >= context_.chunks || chunk.version <= chunk.base) return false;
  if (staging_for_ != chunk.move) {
    staging_for_ = chunk.move;
    std::fill(staging_.begin(), staging_.end(), Lsn{0});
  }
  const Lsn staged = state_.staged[chunk.chunk];
  Lsn& staging = staging_[chunk.chunk];
  if (chunk.base > staged || chunk.version <= std::max(staged, staging)) return false;
  staging = chunk.version;
  return true;
}

void UnitTracker::StagingFailed(const Chunk& chunk) {
  if (staging_for_ == chunk.move && staging_[chunk.chunk] == chunk.version) {
    staging_[chunk.chunk] = Lsn{0};
  }
}

PartAnswer UnitTracker::Check(const UnitUpdate& update) const {
  return CheckUpdate(state_, update);
}

void UnitTracker::Apply(const UnitUpdate& update) {
  if (IsAsleep()) {
    state_.durable.windows.Record(update.session, update.seq, update.first_incomplete);
    return;
  }
  NodeStep step = StepNode(context_, std::move(state_), update);
  EMBLA_CHECK(step.answer.has_value() && step.answer->status == PartStatus::kApplied);
  // Reads of the rows queue behind the update, so they are written as far as anybody can tell.
  const Lsn lsn = step.answer->lsn;
  NodeStep written = StepNode(context_, std::move(step.state), WrittenEvent{lsn});
  EMBLA_CHECK(written.actions.empty());
  EMBLA_CHECK(std::all_of(step.actions.begin(), step.actions.end(), IsOfUpdate));
  state_ = std::move(written.state);
}

PartAnswer UnitTracker::CheckLookup() const { return embla::CheckLookup(state_, UnitEpoch{0}); }

bool UnitTracker::IsAtRest() const { return Owns(state_) && !IsFrozen(state_) && IsAsleep(); }

// A step changes rows whose copies differ: those updated since the last averaging.
UnitStepping UnitTracker::Stepping() const {
  return {.is_here = Owns(state_),
          .is_frozen = IsFrozen(state_),
          .next_step = NextStep(state_.durable.windows.FloorOf(kStepSession))};
}

void UnitTracker::Averaged(bool all) {
  if (IsAsleep()) return;
  UnitDurable& durable = state_.durable;
  durable.lsn = Next(durable.lsn);
  for (Lsn& touched : durable.touched) {
    if (touched > averaged_) touched = durable.lsn;
  }
  if (all) averaged_ = durable.lsn;
  state_.written = durable.lsn;
}

UnitStatus UnitTracker::Status() {
  UnitStatus status{.is_tired = state_.is_tired, .seen = state_.seen};
  const UnitDurable& durable = state_.durable;
  const bool is_frozen = IsFrozen(state_) || state_.is_releasing;
  if (!is_frozen) {
    frozen_since_ = absl::InfiniteFuture();
  } else if (frozen_since_ == absl::InfiniteFuture()) {
    frozen_since_ = clock_.Now();
  }
  if (is_frozen) {
    status.phase = UnitPhase::kFrozen;
    status.move =
        state_.is_releasing ? durable.released->move : std::max(state_.frozen, state_.freezing);
    status.frozen_since = frozen_since_;
  } else if (durable.import.has_value()) {
    status.phase = state_.held.has_value() ? UnitPhase::kHolding : UnitPhase::kReceiving;
    status.move = durable.import->move;
  } else if (state_.reserving != MoveId{0}) {
    status.phase = UnitPhase::kReceiving;
    status.move = state_.reserving;
  } else if (Owns(state_)) {
    status.phase = IsAsleep() ? UnitPhase::kAtRest : UnitPhase::kSending;
    status.move = awake_for_;
  } else if (durable.released.has_value()) {
    status.phase = UnitPhase::kRetained;
    status.move = durable.released->move;
  }
  return status;
}

}  // namespace embla
