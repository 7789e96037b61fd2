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
  void On(const FreezeEvent& event);
  void On(const FreezeDeadline&);
  void On(const PullEvent& event);
  void On(const DropAsideEvent&);
  // target_steps.cc
  void On(const ReservedEvent& event);
  void On(const CoveredEvent&);
  void On(const ChunkEvent& event);
  void On(const FinalEvent& event);
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

  // source_steps.cc
  void FinishFreeze();
  void EndFreezeIfMoveEnded(const UnitRecord& record);
  void ReleaseIfMoved(const UnitRecord& record);
  void TrimIfCleaned(const UnitRecord& record);
  void SendRest(NodeId to);
  void SendFinalCut(NodeId to);
  // Sends chunks that `pull` lacks; how many it lacks, sent or not.
  std::uint32_t SendChunksBehind(const PullEvent& event);

  // target_steps.cc
  void InstallIfCommitted(const UnitRecord& record);
  void DiscardIfEnded(const UnitRecord& record);
  void ImportIfOpen(const UnitRecord& record);
  // Asks the source of the import for its rows, or does without where there is none.
  void FetchImport();
  void SealInitial();
  void SendPullNow(bool resend);

  // device_steps.cc
  void ChangeDevice(const UnitRecord& record);
  void Relocate();

  const UnitContext& context_;
  const Guards& guards_;
  NodeStep step_;
};

}  // namespace embla::detail
