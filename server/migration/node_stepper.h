// Inside of StepNode: one object per step, one method per event.
#pragma once

#include <utility>

#include "server/migration/node_step.h"

namespace embla::detail {

class NodeStepper {
 public:
  NodeStepper(const UnitContext& context, UnitState state)
      : context_(context), guards_(context.guards), step_{std::move(state), {}, {}} {}

  // update_steps.cc
  void On(const UnitUpdate& part);
  void On(const WrittenEvent& event);
  // source_steps.cc
  void On(const CancelEvent& event);
  void On(const FreezeDeadline&);
  void On(const PullEvent& event);
  void On(const HoldsEvent& event);
  void On(const ReleaseSynced& event);
  void On(const CoveredEvent& event);
  void On(const DropAsideEvent&);
  // target_steps.cc
  void On(const ReservedEvent& event);
  void On(const OwnSynced&);
  void On(const ChunkEvent& event);
  void On(const FinalEvent& event);
  void On(const ReleaseEvent& event);
  // node_step.cc
  void On(const RecordEvent& event);
  void On(const NodeTick&);

  NodeStep Take() && { return std::move(step_); }

 private:
  UnitState& unit() { return step_.state; }
  UnitDurable& durable() { return step_.state.durable; }
  template <typename Action>
  void Do(Action action) {
    step_.actions.emplace_back(std::move(action));
  }
  // Logs a record and applies it: the durable part changes by nothing else.
  template <typename Record>
  void Log(Record record) {
    Replay(record, durable());
    Do(LogAction{std::move(record)});
  }
  // A change that a removed guard keeps out of the log.
  template <typename Record>
  void ApplyUnlogged(const Record& record) {
    Replay(record, durable());
  }
  void Report(ReportKind kind, MoveId move) { Do(SendReport{MoveReport{kind, move}}); }

  // node_step.cc
  void AnswerIfOver(const UnitRecord& record);

  // source_steps.cc
  // Whether the coordinator has ordered this node to hand the unit over to `target` in `move`.
  bool IsOrdered(MoveId move, NodeId target);
  void FinishFreeze();
  void Unfreeze();
  bool IsComingStill(const UnitRecord& record);
  void PromiseNoRelease(MoveId move);
  void AbortMove(MoveId move, bool is_synced);
  void PutAsideIfMoved(const UnitRecord& record);
  void TrimIfMovedOn(const UnitRecord& record);
  void Trim();
  void RepeatRelease();
  void SendRest(NodeId to);
  void SendFinalCut(NodeId to, bool chunks_follow);
  // Sends chunks that `pull` lacks; how many it lacks, sent or not.
  std::uint32_t SendChunksBehind(const PullEvent& event);
  bool IsCopyEndless();

  // target_steps.cc
  void InstallIfGranted(const UnitRecord& record, bool source_is_lost);
  // Says that it holds the cut that it has heard of, if it does by now.
  bool HoldIfWhole();
  void ForgetStaged();
  void Acquire(UnitEpoch epoch, HeldCut cut);
  void GiveUpImport(const UnitRecord& record);
  void SayCovered(NodeId source, MoveId move);
  void DiscardIfEnded(const UnitRecord& record);
  void ImportIfOpen(const UnitRecord& record);
  // Asks the source of the import for its rows, or does without where there is none.
  void FetchImport();
  void StageInitial();
  void SendPullNow(bool resend);

  // device_steps.cc
  void ChangeDevice(const UnitRecord& record);
  void Relocate();

  const UnitContext& context_;
  const Guards& guards_;
  NodeStep step_;
};

}  // namespace embla::detail
