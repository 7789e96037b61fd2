// A job: moves of units that an operator asked for, as it is stored and as it is shown.
//   jobs/ID  the fields of MoveJob; ID is 10 decimal digits, runs as arrays of 9 numbers, changes
//            of copies, left out if there are none, as arrays of 5; "goal" as in job_goal.h, if
//            there is one
// The newest kJobsMax are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/job_goal.h"
#include "server/coordinator/move_plan.h"
#include "server/state_store/state_store.h"

namespace embla {

inline constexpr std::size_t kJobsMax = 100;  // Most jobs kept: over, queued or running.
inline constexpr std::size_t kJobsQueuedMax = 64;

enum class JobState : std::uint8_t {
  kRunning = 1,
  kPaused = 2,      // Open moves end, none begins.
  kCancelling = 3,  // Open moves are aborted; ends as failed if there is an error.
  kDone = 4,
  kCancelled = 5,
  kFailed = 6,
  kQueued = 7,  // Other jobs run first; nothing is planned yet.
};
inline bool IsOver(JobState state) {
  return state >= JobState::kDone && state != JobState::kQueued;
}

// The jobs that are kept, by state, and what the running one has yet to do.
struct JobCounts {
  std::map<JobState, std::size_t> jobs;
  std::size_t units_left = 0;
  std::string awaited_node;  // The running job makes no progress without it; empty: there is none.
};

// The reason why a job makes no progress.
struct JobWait {
  std::string what = {};  // "waits for node n1 at 10.0.0.1:7072, which is down"; empty: nothing.
  std::string node = {};  // The name of the node that has to act; empty: no certain one.
};

// Write-frozen time per unit.
struct PauseTimes {
  absl::Duration p50, p99, max;
  bool operator==(const PauseTimes&) const = default;
};
PauseTimes PausesOf(std::vector<absl::Duration> pauses);

struct MoveJob {
  std::uint64_t id = 0;
  std::string description;  // "reshard table clicks to 4 shards"
  JobState state = JobState::kRunning;
  std::string error;                   // Why it fails or has failed.
  std::uint64_t bytes_per_second = 0;  // Limit for every source node; 0: no limit.
  std::uint32_t units_in_flight = 16;
  absl::Time started = absl::UnixEpoch();  // Whole milliseconds.
  absl::Time ended = absl::UnixEpoch();    // The epoch: not yet.
  std::vector<MoveRun> runs;
  std::vector<CopyChange> copies = {};  // Made before the runs.
  // Written when the job ends.
  std::uint64_t units_moved = 0;
  std::uint64_t bytes_moved = 0;  // Bytes sent, repeats included.
  PauseTimes pauses;              // Whole microseconds.
  // A queued job's goal, planned when it begins; kept by jobs that forget a node.
  std::optional<JobGoal> goal = {};
  bool operator==(const MoveJob&) const = default;
};

// The node that the job forgets; null: it is another job.
inline const ForgetGoal* ForgetOf(const MoveJob& job) {
  return job.goal ? std::get_if<ForgetGoal>(&*job.goal) : nullptr;
}

std::string KeyOfJob(std::uint64_t id);
std::string MoveJobToJson(const MoveJob& job);
absl::StatusOr<MoveJob> MoveJobFromJson(std::string_view json);
// By id. DataLoss: unreadable.
absl::StatusOr<std::vector<MoveJob>> LoadJobs(const StateStore& store);

struct JobRequest {
  JobGoal goal;
  std::uint64_t bytes_per_second = 0;  // Limit for every source node; 0: no limit.
  std::uint32_t units_in_flight = 0;   // 0: 16.
  bool dry_run = false;
};

enum class JobControl : std::uint8_t { kPause, kResume, kCancel };

// A job's state, as shown to operators.
struct JobView {
  MoveJob job;  // Counters up to now.
  JobWait wait = {};
  std::uint64_t units_total = 0;
  std::uint64_t units_open = 0;
  // Open units that nodes have handed over, and that are in no plan yet.
  std::uint64_t units_handed_over = 0;
  std::int64_t bytes_total = 0;
  double seconds_left = -1;       // Estimated; negative: unknown.
  std::vector<DeviceRoom> rooms;  // In a dry run.
};

}  // namespace embla
