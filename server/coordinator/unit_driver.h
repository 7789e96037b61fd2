// Drives the moves of units that are open. The file unit_driver.cc begins with how.
//
// Failpoints (core/base/failpoint.h): units.put, units.commit before and units.put_done,
// units.commit_done after a write; units.report, units.orders.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/coordinator/freeze_batches.h"
#include "server/coordinator/move_job.h"
#include "server/coordinator/state_records.h"
#include "server/migration/coordinator_step.h"
#include "server/migration/move_orders.h"
#include "server/state_store/state_store.h"

namespace embla {

// The cluster as moves see it.
class MoveCluster {
 public:
  virtual ~MoveCluster() = default;
  virtual PlanPtr plan() const = 0;
  virtual bool IsLive(NodeId node) const = 0;
  // The operator has said that the node is lost: nothing is waited for that it would say.
  virtual bool IsForgotten(NodeId node) const = 0;
  // Makes `edit` the next plan. The revision is that of everything written. Errors as
  // StateStore::Commit.
  virtual absl::StatusOr<Revision> PutPlan(PlanEdit edit) = 0;
};

struct UnitDriverOptions {
  absl::Duration repeat_after = absl::Seconds(1);         // Orders without effect are repeated.
  absl::Duration stall_after = absl::Seconds(30);         // A move without progress is aborted.
  absl::Duration commit_linger = absl::Milliseconds(20);  // A sealed unit waits for others.
  FreezeBatchOptions batches;
};

class UnitDriver {
 public:
  // Destination of a unit, and the rows that the target's device has in the end.
  struct Way {
    DeviceId from;
    DeviceId to;
    RowRun run;
    std::int64_t bytes = 0;  // Approximate size of the unit.
    bool is_anew = false;    // `from` is lost with its rows: they begin at initial values.
  };
  struct Ended {
    UnitId unit;
    bool moved = false;
    std::string reason;  // Why not.
  };

  // Both are not owned and outlive this object.
  UnitDriver(StateStore& store, MoveCluster& cluster, const UnitDriverOptions& options = {});

  // Begins a move, or resumes the one in the record. DataLoss, NotFound.
  absl::Status Open(const UnitId& unit, const Way& way, absl::Time now);
  // Aborts all moves that have not committed.
  void CancelAll(const std::string& reason);
  void OnReport(NodeId node, const UnitReport& report, absl::Time now);
  // Repeats what may have been lost, aborts what does not get on.
  void Tick(absl::Time now);
  // Writes the store. `cause` is recorded in the history of the plan.
  void Flush(const std::string& cause, absl::Time now);
  // Freezes the next batch, if it is time to. Call when all moves are open that may be.
  void FreezeBatch(absl::Time now);

  // Moves that are over since the last call.
  std::vector<Ended> TakeEnded();
  std::map<NodeId, std::vector<UnitOrder>> TakeOrders(std::uint64_t bytes_per_second);

  std::size_t open_count() const { return open_.size(); }
  // Moves that have not caught up, as far as is known here.
  std::size_t copying_count() const;
  std::uint64_t frozen_count() const;
  // Moves that are soon sealed, or are: commits wait a moment for them.
  std::uint64_t closing_count() const;
  // Units wait for each other: call Flush and FreezeBatch soon.
  bool wants_flush() const { return !commits_.empty() || has_waiting_; }
  // Why the oldest stalled move makes no progress.
  JobWait WaitsFor(absl::Time now) const;

 private:
  struct OpenUnit {
    Way way;
    CoordinatedUnit state;
    Revision revision{};                            // Revision of state.record.
    MoveId move{0};                                 // Once it is in the store.
    absl::Time progressed;                          // The last sign that the move gets on.
    absl::Time told;                                // When the ends were last told.
    absl::Time caught_up = absl::InfiniteFuture();  // When the source first said so.
    bool is_frozen = false;                         // The source was told to freeze.
    std::uint64_t bytes_sent = 0;
    std::string reason;  // Why it is aborted, if it is.

    bool IsOpen() const { return state.record.phase == MovePhase::kOpen; }
    bool HasCaughtUp() const { return caught_up != absl::InfiniteFuture(); }
    bool WaitsForBatch() const { return IsOpen() && HasCaughtUp() && !is_frozen; }
  };
  using Puts = std::map<UnitId, PutToStore>;

  void Step(const UnitId& unit, OpenUnit& open, const CoordinatorEvent& event);
  void Read(const UnitId& unit, OpenUnit& open);
  void AddPut(const UnitId& unit, const PutToStore& put, absl::Time now);
  void Tell(NodeId node, const UnitId& unit, const UnitRecord& record, const Way& way, bool freeze);
  void Abort(const UnitId& unit, OpenUnit& open, const std::string& reason);
  bool IsSentBy(NodeId node, const UnitReport& report, const UnitRecord& record) const;
  void Carry(NodeId node, OpenUnit& open, const UnitReport& report, absl::Time now);
  void AnswerReader(NodeId node, const UnitId& unit);
  void TellEnds(const UnitId& unit);
  // Requires: the unit is open.
  OpenUnit& At(const UnitId& unit);
  void WritePuts(const Puts& puts);
  void WriteCommits(const Puts& commits, const std::string& cause, absl::Time now);
  void AfterWrite(const Puts& puts, const absl::StatusOr<Revision>& written);

  StateStore& store_;     // Not owned; outlives this object.
  MoveCluster& cluster_;  // Not owned; outlives this object.
  const UnitDriverOptions options_;
  absl::Time now_;  // Time of the call that runs.
  std::map<UnitId, OpenUnit> open_;
  Puts puts_;
  Puts commits_;
  absl::Time commits_since_;
  FreezeBatches batches_;
  bool has_waiting_ = false;  // For a batch.
  std::map<NodeId, std::vector<UnitOrder>> orders_;
};

}  // namespace embla
