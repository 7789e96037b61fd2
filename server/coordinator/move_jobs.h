// The jobs of a cluster: each a list of units that move, driven to its end whatever dies meanwhile.
// One runs at a time; others are queued as goals, and planned when they begin. Pure logic like
// Coordinator: a job and every record of a unit is in the store before anything is told.
//
// A unit whose move was aborted is tried again, at most kAttemptsMax times; then the job fails: its
// open moves are aborted, and what has moved stays.
// Failpoints (core/base/failpoint.h): jobs.put, jobs.put_done, jobs.forget, jobs.forget_done.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/copy_driver.h"
#include "server/coordinator/effects.h"
#include "server/coordinator/move_job.h"
#include "server/coordinator/unit_driver.h"
#include "server/state_store/state_store.h"

namespace embla {

inline constexpr int kAttemptsMax = 3;
inline constexpr std::uint32_t kUnitsInFlightDefault = 16;
inline constexpr std::uint32_t kUnitsInFlightMax = 1024;

class MoveJobs {
 public:
  // Both are not owned and outlive this object.
  MoveJobs(StateStore& store, MoveCluster& cluster, const UnitDriverOptions& options = {});

  // Reads all jobs, and resumes one that runs. DataLoss.
  absl::Status Load(absl::Time now);

  // Stores the job together with `writes` and begins it; a job without moves is over at once. The
  // id is given here. Requires: is_idle().
  absl::StatusOr<JobView> Start(MoveJob job, std::vector<StateWrite> writes, absl::Time now);
  // Stores the job, which has a goal and is not planned. One that forgets a node is never too much,
  // and comes first. ResourceExhausted: too many are queued.
  absl::StatusOr<JobView> Enqueue(MoveJob job, std::vector<StateWrite> writes, absl::Time now);
  // The queued job that is to begin now; null: none is, or one runs.
  const MoveJob* NextQueued() const;
  // The job begins with `moves`, or fails with their error.
  absl::Status BeginQueued(std::uint64_t id, const absl::StatusOr<MovePlan>& moves, absl::Time now);
  // NotFound; FailedPrecondition: it is over.
  absl::StatusOr<JobView> Control(std::uint64_t id, JobControl control, absl::Time now);
  absl::StatusOr<JobView> Get(std::uint64_t id, absl::Time now) const;  // NotFound.
  JobCounts Counts(absl::Time now) const;
  std::vector<JobView> List(absl::Time now) const;  // The newest first.
  // The newest `count`, without their moves.
  std::vector<JobView> Newest(std::size_t count, absl::Time now) const;

  void OnReports(NodeId node, std::span<const UnitReport> reports, absl::Time now);
  void Tick(absl::Time now);
  std::vector<SendOrders> TakeOrders();
  // Ends the job that runs, where its units are.
  void Abandon(const std::string& reason, absl::Time now);

  // The job that is not over, or none.
  const MoveJob* running() const;
  // The job that runs fails with `reason` if it needs the node.
  void EndIfItNeeds(NodeId node, const std::string& reason, absl::Time now);
  // The job that forgets the node and is not over; null: none.
  const MoveJob* Forgetting(NodeId node) const;
  // Whether a job that forgets the node is over and has moved something.
  bool HasForgottenSome(NodeId node) const;
  // No job runs and none is queued.
  bool is_idle() const { return running() == nullptr && queued_count() == 0; }
  // Bytes that the running job still brings to each device.
  std::map<DeviceId, std::int64_t> Incoming() const;
  // True while units wait for their plan, or a copy's node has not answered: call Tick
  // again within about 10 ms.
  bool wants_tick() const { return driver_.wants_flush() || !copies_.is_over(); }

 private:
  struct WaitingUnit {
    UnitId unit;
    std::size_t run = 0;  // Index of the job's run.
    int attempts = 0;
    absl::Time not_before = absl::InfinitePast();
  };
  struct Sent {  // By the last move of a unit that told of it.
    MoveId move{};
    std::uint64_t bytes = 0;
    bool has_paused = false;
  };
  struct Running {
    std::uint64_t id = 0;
    std::vector<RowRun> final_rows;  // By run: what the target's device has in the end.
    std::deque<WaitingUnit> waiting;
    std::map<UnitId, WaitingUnit> open;
    std::uint64_t moved = 0;
    std::vector<std::int64_t> bytes_left;  // By run.
    std::map<UnitId, Sent> sent;
    std::uint64_t bytes_sent = 0;
    std::vector<absl::Duration> pauses;
    absl::Time since;                // When this life of the coordinator began on it,
    std::uint64_t moved_before = 0;  // with so many units moved already.
  };

  std::size_t queued_count() const;
  absl::Status Begin(const MoveJob& job, absl::Time now);
  // Stores a job that is new here.
  absl::StatusOr<const MoveJob*> Add(MoveJob job, std::vector<StateWrite> writes, absl::Time now);
  absl::StatusOr<JobView> ControlQueued(MoveJob job, JobControl control, absl::Time now);
  void OpenMore(absl::Time now);
  void Advance(absl::Time now);
  void Flush(absl::Time now);
  void TakeEnded(absl::Time now);
  bool IsWhereItGoes(const MoveJob& job, const MoveRun& run, const UnitId& unit,
                     const UnitRecord& record) const;
  void CountMoved(std::size_t run);
  void GiveUp(const std::string& reason);
  void FinishIfOver(absl::Time now);
  void Count(const UnitReport& report);
  absl::Status Put(const MoveJob& job, std::vector<StateWrite> writes = {});
  // Together with the node that it forgets, if it does.
  absl::Status PutEnd(const MoveJob& job);
  void PutOrWarn(const MoveJob& job);
  JobView ViewOf(const MoveJob& job, absl::Time now) const;
  JobView SummaryOf(const MoveJob& job, absl::Time now) const;  // Without its moves.
  JobWait WaitsFor() const;                                     // The running job.

  StateStore& store_;     // Not owned; outlives this object.
  MoveCluster& cluster_;  // Not owned; outlives this object.
  UnitDriver driver_;
  CopyDriver copies_;  // Before any unit is opened.
  std::map<std::uint64_t, MoveJob> jobs_;
  std::optional<Running> running_;
};

}  // namespace embla
