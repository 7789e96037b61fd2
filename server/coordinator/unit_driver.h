// Drives the moves of units that are open. The file unit_driver.cc begins with how.
//
// Failpoints (core/base/failpoint.h): units.put, units.publish before and units.put_done,
// units.publish_done after a write; units.report, units.orders.
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
#include "server/coordinator/move_job.h"
#include "server/coordinator/state_records.h"
#include "server/coordinator/unit_records.h"
#include "server/migration/coordinator_step.h"
#include "server/migration/move_orders.h"
#include "server/migration/unit_standing.h"
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
  // Whether a record that was written at `written` knows `node` from a process before the present
  // one, and something of that one's log is lost.
  virtual bool IsLost(NodeId node, Revision written) const = 0;
  // The unit as the node's present process knew it when it registered.
  virtual UnitStanding StandingOf(NodeId node, const UnitId& unit) const = 0;
  // Makes `edit` the next plan. The revision is that of everything written. Errors as
  // StateStore::Commit.
  virtual absl::StatusOr<Revision> PutPlan(PlanEdit edit) = 0;
};

struct UnitDriverOptions {
  absl::Duration repeat_after = absl::Seconds(1);  // Orders without effect are repeated.
  absl::Duration stall_after = absl::Seconds(30);  // A move without progress is cancelled.
  // Units that have been handed over wait for others, for a plan that has them all: so long, and
  // for longer the longer the job takes already, which bounds its plans (Flush).
  absl::Duration publish_linger = absl::Seconds(1);
  double publish_share = 0.1;
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
  // Cancels all moves that have not taken place.
  void CancelAll(const std::string& reason);
  void OnReport(NodeId node, const UnitReport& report, absl::Time now);
  // Repeats what may have been lost, cancels what does not get on.
  void Tick(absl::Time now);
  // Writes the store. `cause`, which began at `since`, is recorded in the history of the plan;
  // `more_come`: it has units that are not open yet.
  void Flush(const std::string& cause, absl::Time since, bool more_come, absl::Time now);

  // Moves that are over since the last call.
  std::vector<Ended> TakeEnded();
  std::map<NodeId, std::vector<UnitOrder>> TakeOrders(std::uint64_t bytes_per_second);

  std::size_t open_count() const { return open_.size(); }
  // Moves that have not taken place, as far as is known here.
  std::size_t copying_count() const { return open_.size() - handed_over_.size(); }
  // Units wait for the next plan: call Flush soon.
  bool wants_flush() const { return !handed_over_.empty(); }
  std::size_t handed_over_count() const { return handed_over_.size(); }
  // Why the oldest stalled move makes no progress.
  JobWait WaitsFor() const;

 private:
  struct OpenUnit {
    Way way;
    CoordinatedUnit state;
    Revision revision{};    // Revision of state.record.
    MoveId move{0};         // Once it is in the store.
    absl::Time progressed;  // The last sign that the move gets on.
    absl::Time told;        // When the ends were last told.
    std::uint64_t bytes_sent = 0;
    std::string reason;  // Why it is cancelled, if it is.

    bool IsOpen() const { return state.record.phase == MovePhase::kOpen; }
  };
  using Puts = std::map<UnitId, PutToStore>;

  void Step(const UnitId& unit, OpenUnit& open, const CoordinatorEvent& event);
  void Read(const UnitId& unit, OpenUnit& open);
  void AddPut(const UnitId& unit, const PutToStore& put, absl::Time now);
  UnitOrder OrderFor(const UnitId& unit, const StoredUnit& stored, const Way& way) const;
  void Tell(NodeId node, UnitOrder order);
  void Cancel(const UnitId& unit, OpenUnit& open, const std::string& reason);
  // The source's word about the move that `stored` has, as its present process can give it.
  enum class Word : std::uint8_t { kItsOwn, kReleased, kUnknowing, kNone };
  Word WordOfSource(const UnitId& unit, const StoredUnit& stored) const;
  bool IsSentBy(NodeId node, const UnitReport& report, const StoredUnit& stored) const;
  void Carry(NodeId node, OpenUnit& open, const UnitReport& report, absl::Time now);
  void AnswerReader(NodeId node, const UnitId& unit);
  void TellEnds(const UnitId& unit);
  // Requires: the unit is open.
  OpenUnit& At(const UnitId& unit);
  void WritePuts(const Puts& puts);
  void WriteHandedOver(const Puts& puts, const std::string& cause, absl::Time now);
  void AfterWrite(const Puts& puts, const absl::StatusOr<Revision>& written);

  StateStore& store_;     // Not owned; outlives this object.
  MoveCluster& cluster_;  // Not owned; outlives this object.
  const UnitDriverOptions options_;
  absl::Time now_;  // Time of the call that runs.
  std::map<UnitId, OpenUnit> open_;
  Puts puts_;
  Puts handed_over_;  // Known to have taken place, and in no plan yet.
  absl::Time handed_over_since_;
  std::map<NodeId, std::vector<UnitOrder>> orders_;
};

}  // namespace embla
