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

constexpr absl::Duration kJobLook = absl::Milliseconds(20);  // Between two questions about a job.
constexpr absl::Duration kFinishTimeout = absl::Seconds(60);
// Most looks at a job before it is interfered with, if it is.
constexpr int kLooksBeforeInterference = 60;
// Bytes per second; 0: no limit. Slow enough for faults to meet units on their way.
constexpr std::uint64_t kRates[] = {0, 1'000'000, 4'000'000};
constexpr std::uint32_t kInFlight[] = {1, 4, 16, 0};

std::string NameOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_DONE:
      return "done";
    case v1::JOB_STATE_CANCELLED:
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
  stopped_.WaitFor(mu_, kJobLook);
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
    const v1::StartJobRequest request = DrawRequest();
    const absl::StatusOr<v1::Job> started = client::CallForJob(*admin, request);
    if (!started.ok()) {
      Count(absl::StrCat("refused: ",
                         std::string(absl::StatusCodeToString(started.status().code()))));
      // Perhaps it was started, and the answer was lost.
      const auto jobs = admin->Call<v1::ListJobsReply>(v1::ListJobsRequest());
      if (jobs.ok() && jobs->jobs_size() > 0 && !client::IsOver(jobs->jobs(0).state())) {
        Follow(jobs->jobs(0).id());
      }
      AwaitNextLook();
    } else if (started->id() != 0) {
      Follow(started->id());
    }
  }
}

v1::StartJobRequest JobDriver::DrawRequest() {
  const std::uint64_t dice = random_() % 100;
  const std::string& table = tables_[random_() % tables_.size()];
  const std::uint64_t rate = kRates[random_() % std::size(kRates)];
  const std::uint32_t in_flight = kInFlight[random_() % std::size(kInFlight)];
  const std::string node = cluster_.NameOf(static_cast<int>(random_() % cluster_.shards()));
  v1::StartJobRequest request = DrawGoal(dice, table, node);
  request.set_bytes_per_second(rate);
  request.set_units_in_flight(in_flight);
  return request;
}

v1::StartJobRequest JobDriver::DrawGoal(std::uint64_t dice, const std::string& table,
                                        const std::string& node) {
  if (dice < 50) {
    const auto devices =
        static_cast<std::uint32_t>(cluster_.shards() * cluster_.devices_per_shard());
    return client::ReshardRequest(table, 1 + random_() % devices);
  }
  if (dice < 75) {
    const std::uint32_t device = random_() % cluster_.devices_per_shard();
    const std::uint32_t begin = random_() % kUnitsPerTable;
    const std::uint32_t end = begin + 1 + random_() % (kUnitsPerTable - begin);
    return client::MoveRequest(table, begin, end, node, device);
  }
  if (dice < 82) return client::DrainRequest(node);
  if (dice < 95) return client::UndrainRequest(node);
  return client::RebalanceRequest();
}

void JobDriver::Follow(std::uint64_t id) {
  const bool interferes = random_() % 4 == 0;
  int looks_left = 1 + static_cast<int>(random_() % kLooksBeforeInterference);
  while (!stop_) {
    const absl::StatusOr<v1::Job> job = client::CallForJob(*admin_, client::GetJobRequest(id));
    if (job.ok()) Note(*job);
    if (absl::IsNotFound(job.status())) return;
    if (job.ok() && client::IsOver(job->state())) {
      units_moved_ += job->units_moved();
      std::string outcome = NameOf(job->state());
      if (job->state() == v1::JOB_STATE_FAILED) absl::StrAppend(&outcome, " (", job->error(), ")");
      return Count(outcome);
    }
    if (interferes && --looks_left == 0) Interfere(id);
    AwaitNextLook();
  }
}

// The result is seen by looking at the job.
void JobDriver::Interfere(std::uint64_t id) {
  if (random_() % 2 == 0) {
    static_cast<void>(client::CallForJob(
        *admin_, client::ControlJobRequest(id, v1::ControlJobRequest::ACTION_CANCEL)));
    return;
  }
  static_cast<void>(client::CallForJob(
      *admin_, client::ControlJobRequest(id, v1::ControlJobRequest::ACTION_PAUSE)));
  for (int i = 0; i < 10 && !stop_; ++i) {
    const absl::StatusOr<v1::Job> job = client::CallForJob(*admin_, client::GetJobRequest(id));
    if (job.ok()) Note(*job);
    AwaitNextLook();
  }
  while (!stop_) {
    const absl::StatusOr<v1::Job> resumed = client::CallForJob(
        *admin_, client::ControlJobRequest(id, v1::ControlJobRequest::ACTION_RESUME));
    if (!absl::IsUnavailable(resumed.status())) return;
    AwaitNextLook();
  }
}

void JobDriver::Note(const v1::Job& job) {
  MoveState state;
  for (const v1::PlannedMove& move : job.moves()) {
    state.sources.insert(cluster_.VictimOf(move.from_node()));
    state.targets.insert(cluster_.VictimOf(move.to_node()));
  }
  if (client::IsOver(job.state())) {
    state = MoveState();
  } else if (job.state() == v1::JOB_STATE_PAUSED) {
    state.what = "paused";
  } else if (job.state() == v1::JOB_STATE_CANCELLING) {
    state.what = "cancel";
  } else {
    state.what = job.units_handed_over() > 0 ? "handed_over" : "copy";
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
    const auto jobs = admin == nullptr ? absl::UnavailableError(last)
                                       : admin->Call<v1::ListJobsReply>(v1::ListJobsRequest());
    bool runs = !jobs.ok();
    if (jobs.ok()) {
      for (const v1::Job& job : jobs->jobs()) {
        if (client::IsOver(job.state())) continue;
        runs = true;
        last = absl::StrCat("job ", job.id(), " (", job.description(),
                            ") does not end: ", job.units_moved(), " of ", job.units_total(),
                            " moved, ", job.units_open(), " open, ", job.units_handed_over(),
                            " handed over, ", job.error());
        if (job.state() != v1::JOB_STATE_CANCELLING) {
          static_cast<void>(client::CallForJob(
              *admin, client::ControlJobRequest(job.id(), v1::ControlJobRequest::ACTION_CANCEL)));
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
    const v1::StartJobRequest request = client::UndrainRequest(cluster_.NameOf(shard));
    absl::Status status = absl::UnavailableError("");
    while (!status.ok() && absl::Now() < until) {
      client::Admin* const admin = this->admin();
      if (admin != nullptr) status = client::CallForJob(*admin, request).status();
      if (!status.ok()) AwaitNextLook();
    }
    EMBLA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace embla::fault
