#include "tests/fault/job_driver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tests/fault/judged_table.h"

namespace embla::fault {
namespace {

using client::JobRequest;
using client::JobState;

constexpr absl::Duration kLook = absl::Milliseconds(20);  // Between two questions about a job.
constexpr absl::Duration kFinishTimeout = absl::Seconds(60);
// Of the jobs that are not left alone: after so many looks at most.
constexpr int kLooksBeforeInterference = 60;
// Bytes per second; 0: no limit. Slow enough for faults to meet units on their way.
constexpr std::uint64_t kRates[] = {0, 1'000'000, 4'000'000};
constexpr std::uint32_t kInFlight[] = {1, 4, 16, 0};

std::string NameOf(JobState state) {
  switch (state) {
    case JobState::kDone:
      return "done";
    case JobState::kCancelled:
      return "cancelled";
    default:
      return "failed";
  }
}

}  // namespace

std::string MoveState::RoleOf(int shard) const {
  const bool is_source = sources.contains(shard);
  const bool is_target = targets.contains(shard);
  if (is_source && is_target) return "both";
  if (is_source) return "source";
  return is_target ? "target" : "bystander";
}

JobDriver::JobDriver(ChaosCluster& cluster, std::vector<std::string> tables, std::uint64_t seed)
    : cluster_(cluster), tables_(std::move(tables)), random_(seed), thread_([this] { Run(); }) {}

JobDriver::~JobDriver() { Stop(); }

void JobDriver::Stop() {
  {
    const MutexLock lock(mu_);
    stop_ = true;
    stopped_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void JobDriver::AwaitNextLook() {
  const MutexLock lock(mu_);
  stopped_.WaitFor(mu_, kLook);
}

MoveState JobDriver::Now() const {
  const MutexLock lock(mu_);
  return state_;
}

std::string JobDriver::Summary() const {
  const MutexLock lock(mu_);
  std::string text;
  for (const auto& [outcome, times] : outcomes_) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", times, " ", outcome);
  }
  return text;
}

void JobDriver::Count(const std::string& outcome) {
  const MutexLock lock(mu_);
  ++outcomes_[outcome];
}

client::Admin* JobDriver::admin() {
  if (admin_ != nullptr) return admin_.get();
  auto connected = cluster_.ConnectAdmin();
  if (connected.ok()) admin_ = *std::move(connected);
  return admin_.get();
}

void JobDriver::Run() {
  while (!stop_) {
    client::Admin* const admin = this->admin();
    if (admin == nullptr) {
      AwaitNextLook();
      continue;
    }
    const JobRequest request = DrawRequest();
    const absl::StatusOr<client::Job> started = admin->StartJob(request);
    if (!started.ok()) {
      Count(absl::StrCat("refused: ",
                         std::string(absl::StatusCodeToString(started.status().code()))));
      // Perhaps it was started, and the answer was lost.
      const auto jobs = admin->ListJobs();
      if (jobs.ok() && !jobs->empty() && !IsOver(jobs->front().state)) Follow(jobs->front().id);
      AwaitNextLook();
    } else if (started->id != 0) {
      Follow(started->id);
    }
  }
}

JobRequest JobDriver::DrawRequest() {
  const std::uint64_t dice = random_() % 100;
  JobRequest request;
  request.table = tables_[random_() % tables_.size()];
  request.bytes_per_second = kRates[random_() % std::size(kRates)];
  request.units_in_flight = kInFlight[random_() % std::size(kInFlight)];
  const int shard = static_cast<int>(random_() % cluster_.shards());
  request.node = cluster_.NameOf(shard);
  if (dice < 50) {
    request.goal = JobRequest::Goal::kReshard;
    const auto devices =
        static_cast<std::uint32_t>(cluster_.shards() * cluster_.devices_per_shard());
    request.shards = 1 + random_() % devices;
  } else if (dice < 75) {
    request.goal = JobRequest::Goal::kMove;
    request.device = random_() % cluster_.devices_per_shard();
    request.granule_begin = random_() % kUnitsPerTable;
    request.granule_end =
        request.granule_begin + 1 + random_() % (kUnitsPerTable - request.granule_begin);
  } else if (dice < 82) {
    request.goal = JobRequest::Goal::kDrain;
  } else if (dice < 95) {
    request.goal = JobRequest::Goal::kUndrain;
  } else {
    request.goal = JobRequest::Goal::kRebalance;
  }
  return request;
}

void JobDriver::Follow(std::uint64_t id) {
  const bool interferes = random_() % 4 == 0;
  int looks_left = 1 + static_cast<int>(random_() % kLooksBeforeInterference);
  while (!stop_) {
    const absl::StatusOr<client::Job> job = admin_->GetJob(id);
    if (job.ok()) Note(*job);
    if (absl::IsNotFound(job.status())) return;
    if (job.ok() && IsOver(job->state)) {
      units_moved_ += job->units_moved;
      std::string outcome = NameOf(job->state);
      if (job->state == JobState::kFailed) absl::StrAppend(&outcome, " (", job->error, ")");
      return Count(outcome);
    }
    if (interferes && --looks_left == 0) Interfere(id);
    AwaitNextLook();
  }
}

// What comes of it is seen by looking at the job.
void JobDriver::Interfere(std::uint64_t id) {
  if (random_() % 2 == 0) {
    static_cast<void>(admin_->ControlJob(id, client::JobControl::kCancel));
    return;
  }
  static_cast<void>(admin_->ControlJob(id, client::JobControl::kPause));
  for (int i = 0; i < 10 && !stop_; ++i) {
    const absl::StatusOr<client::Job> job = admin_->GetJob(id);
    if (job.ok()) Note(*job);
    AwaitNextLook();
  }
  while (!stop_) {
    const absl::StatusOr<client::Job> resumed = admin_->ControlJob(id, client::JobControl::kResume);
    if (!absl::IsUnavailable(resumed.status())) return;
    AwaitNextLook();
  }
}

void JobDriver::Note(const client::Job& job) {
  MoveState state;
  for (const client::PlannedMove& move : job.moves) {
    state.sources.insert(cluster_.VictimOf(move.from_node));
    state.targets.insert(cluster_.VictimOf(move.to_node));
  }
  if (IsOver(job.state)) {
    state = MoveState();
  } else if (job.state == JobState::kPaused) {
    state.what = "paused";
  } else if (job.state == JobState::kCancelling) {
    state.what = "cancel";
  } else {
    state.what = job.units_frozen > 0 ? "frozen" : "copy";
  }
  const MutexLock lock(mu_);
  state_ = std::move(state);
}

absl::Status JobDriver::Finish() {
  Stop();
  EMBLA_RETURN_IF_ERROR(AwaitNoJob());
  return UndrainAll();
}

absl::Status JobDriver::AwaitNoJob() {
  const absl::Time until = absl::Now() + kFinishTimeout;
  std::string last = "the coordinator does not answer";
  while (absl::Now() < until) {
    client::Admin* const admin = this->admin();
    const auto jobs = admin == nullptr ? absl::UnavailableError(last) : admin->ListJobs();
    bool runs = !jobs.ok();
    if (jobs.ok()) {
      for (const client::Job& job : *jobs) {
        if (IsOver(job.state)) continue;
        runs = true;
        last =
            absl::StrCat("job ", job.id, " (", job.description, ") does not end: ", job.units_moved,
                         " of ", job.units_total, " moved, ", job.units_open, " open, ",
                         job.units_frozen, " frozen, ", job.error);
        if (job.state != JobState::kCancelling) {
          static_cast<void>(admin->ControlJob(job.id, client::JobControl::kCancel));
        }
      }
    }
    if (!runs) return absl::OkStatus();
    AwaitNextLook();
  }
  return absl::DeadlineExceededError(last);
}

absl::Status JobDriver::UndrainAll() {
  const absl::Time until = absl::Now() + kFinishTimeout;
  for (int shard = 0; shard < cluster_.shards(); ++shard) {
    JobRequest request{.goal = JobRequest::Goal::kUndrain, .node = cluster_.NameOf(shard)};
    absl::Status status = absl::UnavailableError("");
    while (!status.ok() && absl::Now() < until) {
      client::Admin* const admin = this->admin();
      if (admin != nullptr) status = admin->StartJob(request).status();
      if (!status.ok()) AwaitNextLook();
    }
    EMBLA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace embla::fault
