#include "server/coordinator/move_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/unit_records.h"
#include "server/coordinator/unit_tiling.h"
#include "server/migration/copy_orders.h"

namespace embla {
namespace {

// A unit that failed waits before it is tried again.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

absl::Time WholeMillis(absl::Time time) { return absl::FromUnixMillis(absl::ToUnixMillis(time)); }

std::uint64_t UnitsOf(const MoveJob& job) {
  std::uint64_t units = job.copies.size();
  for (const MoveRun& run : job.runs) units += run.units();
  return units;
}

std::int64_t BytesOf(const MoveJob& job) {
  std::int64_t bytes = 0;
  for (const MoveRun& run : job.runs) bytes += run.bytes;
  for (const CopyChange& change : job.copies) bytes += change.bytes;
  return bytes;
}

std::string NameOf(const MoveJob& job) { return absl::StrCat("job ", job.id); }

UnitDriver::Way WayOf(const MoveJob& job, std::size_t r, const RowRun& final_rows) {
  const MoveRun& run = job.runs[r];
  return {.from = run.from,
          .to = run.to,
          .run = final_rows,
          .bytes = run.bytes / run.units(),
          .is_anew = ForgetOf(job) != nullptr};
}

bool Needs(const MoveJob& job, NodeId node) {
  return std::ranges::any_of(
             job.runs,
             [node](const MoveRun& run) { return run.from.node == node || run.to.node == node; }) ||
         std::ranges::any_of(
             job.copies, [node](const CopyChange& change) { return change.device.node == node; });
}

bool Forgets(const MoveJob& job, NodeId node) {
  const ForgetGoal* const goal = ForgetOf(job);
  return goal != nullptr && NodeId{goal->id} == node;
}

// By run: the rows around the run in the tiling that the job ends with.
absl::StatusOr<std::vector<RowRun>> FinalRows(const Plan& plan, const std::vector<MoveRun>& runs) {
  std::map<TableId, std::vector<MoveRun>> by_table;
  for (const MoveRun& run : runs) by_table[run.table].push_back(run);
  std::map<TableId, std::vector<UnitCut>> cuts;
  for (const auto& [id, moves] : by_table) {
    const TablePlan* const table = plan.FindTable(id);
    if (table == nullptr) {
      return absl::DataLossError(absl::StrCat("a job moves table ", ToInt(id), ", which is gone"));
    }
    TablePlan after = *table;
    after.replicas[0] = TilingAfter(*table, moves);  // Other groups' rows are the same.
    cuts[id] = CutsOf(after);
  }
  std::vector<RowRun> rows;
  for (const MoveRun& run : runs) {
    const TableSpec& spec = plan.FindTable(run.table)->spec;
    const auto cut =
        std::ranges::find(cuts[run.table], run.column_granule, &UnitCut::column_granule);
    const GranuleRun around = RunAround(*cut, run.granule_begin);
    rows.push_back({spec.RowGranuleBegin(around.begin), spec.RowGranuleBegin(around.end)});
  }
  return rows;
}

}  // namespace

MoveJobs::MoveJobs(StateStore& store, MoveCluster& cluster, const UnitDriverOptions& options)
    : store_(store), cluster_(cluster), driver_(store, cluster, options), copies_(cluster) {}

absl::Status MoveJobs::Load(absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(std::vector<MoveJob> jobs, LoadJobs(store_));
  for (MoveJob& job : jobs) jobs_.emplace(job.id, std::move(job));
  for (const auto& [id, job] : jobs_) {
    if (!IsOver(job.state) && job.state != JobState::kQueued) return Begin(job, now);
  }
  return absl::OkStatus();
}

absl::Status MoveJobs::Begin(const MoveJob& job, absl::Time now) {
  Running running;
  running.id = job.id;
  running.since = now;
  EMBLA_ASSIGN_OR_RETURN(running.final_rows, FinalRows(*cluster_.plan(), job.runs));
  running_ = std::move(running);
  copies_.Begin(job.copies, ForgetOf(job) != nullptr && ForgetOf(job)->lose_rows);
  for (std::size_t r = 0; r < job.runs.size(); ++r) {
    const MoveRun& run = job.runs[r];
    running_->bytes_left.push_back(run.bytes);
    for (std::uint32_t granule = run.granule_begin; granule < run.granule_end; ++granule) {
      const WaitingUnit waiting{.unit = {run.table, granule, run.column_granule}, .run = r};
      EMBLA_ASSIGN_OR_RETURN(const StoredUnit stored,
                             ReadUnit(store_, *cluster_.plan(), waiting.unit));
      if (stored.record.phase == MovePhase::kOpen) {
        running_->open.emplace(waiting.unit, waiting);
        EMBLA_RETURN_IF_ERROR(
            driver_.Open(waiting.unit, WayOf(job, r, running_->final_rows[r]), now));
      } else if (IsWhereItGoes(job, run, waiting.unit, stored.record)) {
        CountMoved(r);
      } else {
        running_->waiting.push_back(waiting);
      }
    }
  }
  running_->moved_before = running_->moved;
  return absl::OkStatus();
}

// A forgotten node's unit that has another owner is not begun anew.
bool MoveJobs::IsWhereItGoes(const MoveJob& job, const MoveRun& run, const UnitId& unit,
                             const UnitRecord& record) const {
  if (IsOn(*cluster_.plan(), unit, run.to)) return true;
  return ForgetOf(job) != nullptr && !cluster_.IsForgotten(record.owner);
}

const MoveJob* MoveJobs::running() const { return running_ ? &jobs_.at(running_->id) : nullptr; }

std::size_t MoveJobs::queued_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      jobs_, [](const auto& entry) { return entry.second.state == JobState::kQueued; }));
}

const MoveJob* MoveJobs::NextQueued() const {
  if (running_) return nullptr;
  const MoveJob* next = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (job.state != JobState::kQueued) continue;
    if (ForgetOf(job) != nullptr) return &job;
    if (next == nullptr) next = &job;
  }
  return next;
}

const MoveJob* MoveJobs::Forgetting(NodeId node) const {
  for (const auto& [id, job] : jobs_) {
    if (!IsOver(job.state) && Forgets(job, node)) return &job;
  }
  return nullptr;
}

bool MoveJobs::HasForgottenSome(NodeId node) const {
  return std::ranges::any_of(jobs_, [node](const auto& entry) {
    return Forgets(entry.second, node) && entry.second.units_moved > 0;
  });
}

void MoveJobs::EndIfItNeeds(NodeId node, const std::string& reason, absl::Time now) {
  if (!running_ || !Needs(*running(), node)) return;
  if (running()->state != JobState::kCancelling) GiveUp(reason);
  Tick(now);
}

std::map<DeviceId, std::int64_t> MoveJobs::Incoming() const {
  std::map<DeviceId, std::int64_t> incoming;
  if (!running_) return incoming;
  const PlanPtr plan = cluster_.plan();
  for (std::size_t r = 0; r < running()->runs.size(); ++r) {
    const MoveRun& run = running()->runs[r];
    const TablePlan* const table = plan->FindTable(run.table);
    const NodeSpec* const node = plan->FindNode(run.to.node);
    if (table == nullptr || node == nullptr) continue;
    for (const DeviceId copy : CopiesOf(table->spec, *node, run.to)) {
      incoming[copy] += running_->bytes_left[r] / table->spec.replica_groups;
    }
  }
  for (const CopyChange& change : copies_.changes()) {
    const TablePlan* const table = cluster_.plan()->FindTable(change.table);
    if (table != nullptr && !IsMade(change, *table)) incoming[change.device] += change.bytes;
  }
  return incoming;
}

absl::Status MoveJobs::Put(const MoveJob& job, std::vector<StateWrite> writes) {
  writes.push_back({KeyOfJob(job.id), MoveJobToJson(job)});
  CrashPoint("jobs.put");
  const absl::Status written = store_.Commit({}, writes).status();
  CrashPoint("jobs.put_done");
  return written;
}

absl::StatusOr<const MoveJob*> MoveJobs::Add(MoveJob job, std::vector<StateWrite> writes,
                                             absl::Time now) {
  job.id = jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
  job.started = WholeMillis(now);
  if (job.units_in_flight == 0) job.units_in_flight = kUnitsInFlightDefault;
  if (IsOver(job.state)) job.ended = job.started;
  const auto oldest =
      std::ranges::find_if(jobs_, [](const auto& entry) { return IsOver(entry.second.state); });
  const bool is_full = jobs_.size() >= kJobsMax && oldest != jobs_.end();
  if (is_full) writes.push_back({KeyOfJob(oldest->first), std::nullopt});
  EMBLA_RETURN_IF_ERROR(Put(job, std::move(writes)));
  if (is_full) jobs_.erase(oldest);
  return &jobs_.emplace(job.id, std::move(job)).first->second;
}

absl::StatusOr<JobView> MoveJobs::Start(MoveJob job, std::vector<StateWrite> writes,
                                        absl::Time now) {
  if (job.runs.empty() && job.copies.empty()) job.state = JobState::kDone;
  EMBLA_ASSIGN_OR_RETURN(const MoveJob* const stored, Add(std::move(job), std::move(writes), now));
  LogInfo("coordinator", "job started id=", stored->id, " what=", stored->description,
          " units=", UnitsOf(*stored));
  if (!IsOver(stored->state)) {
    EMBLA_RETURN_IF_ERROR(Begin(*stored, now));
    Tick(now);
  }
  return ViewOf(*stored, now);
}

absl::StatusOr<JobView> MoveJobs::Enqueue(MoveJob job, std::vector<StateWrite> writes,
                                          absl::Time now) {
  if (queued_count() >= kJobsQueuedMax && ForgetOf(job) == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kJobsQueuedMax, " jobs are queued; wait for some, or cancel them"));
  }
  job.state = JobState::kQueued;
  EMBLA_ASSIGN_OR_RETURN(const MoveJob* const stored, Add(std::move(job), std::move(writes), now));
  LogInfo("coordinator", "job queued id=", stored->id, " what=", stored->description);
  return ViewOf(*stored, now);
}

absl::Status MoveJobs::BeginQueued(std::uint64_t id, const absl::StatusOr<MovePlan>& moves,
                                   absl::Time now) {
  MoveJob job = jobs_.at(id);
  const bool forgets = ForgetOf(job) != nullptr;
  if (!forgets) job.goal.reset();
  job.state = JobState::kRunning;
  if (moves.ok()) {
    job.runs = moves->runs;
    job.copies = moves->copies;
  } else {
    job.state = JobState::kFailed;
    job.error = Message(moves.status());
  }
  if (moves.ok() && !forgets && job.runs.empty() && job.copies.empty()) job.state = JobState::kDone;
  if (IsOver(job.state)) job.ended = WholeMillis(now);
  EMBLA_RETURN_IF_ERROR(Put(job));
  MoveJob& stored = jobs_.at(id) = std::move(job);
  LogInfo("coordinator", "queued job begins id=", id, " units=", UnitsOf(stored),
          " error=", stored.error);
  if (IsOver(stored.state)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(Begin(stored, now));
  Tick(now);
  return absl::OkStatus();
}

absl::StatusOr<JobView> MoveJobs::ControlQueued(MoveJob job, JobControl control, absl::Time now) {
  if (control != JobControl::kCancel) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(job), " is queued: it can be cancelled only"));
  }
  job.goal.reset();
  job.state = JobState::kCancelled;
  job.ended = WholeMillis(now);
  EMBLA_RETURN_IF_ERROR(Put(job));
  const MoveJob& stored = jobs_.at(job.id) = std::move(job);
  return ViewOf(stored, now);
}

absl::StatusOr<JobView> MoveJobs::Control(std::uint64_t id, JobControl control, absl::Time now) {
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return Get(id, now);
  MoveJob changed = entry->second;
  if (IsOver(changed.state) || changed.state == JobState::kCancelling) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(changed), " is ", IsOver(changed.state) ? "over" : "being cancelled already"));
  }
  if (changed.state == JobState::kQueued) return ControlQueued(std::move(changed), control, now);
  if (control == JobControl::kCancel && ForgetOf(changed) != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(changed), " forgets a node, which cannot come back: it cannot be cancelled"));
  }
  switch (control) {
    case JobControl::kPause:
      changed.state = JobState::kPaused;
      break;
    case JobControl::kResume:
      changed.state = JobState::kRunning;
      break;
    case JobControl::kCancel:
      changed.state = JobState::kCancelling;
      break;
  }
  EMBLA_RETURN_IF_ERROR(Put(changed));
  entry->second = std::move(changed);
  Tick(now);
  return ViewOf(entry->second, now);
}

absl::StatusOr<JobView> MoveJobs::Get(std::uint64_t id, absl::Time now) const {
  const auto entry = jobs_.find(id);
  if (entry != jobs_.end()) return ViewOf(entry->second, now);
  return absl::NotFoundError(
      absl::StrCat("there is no job ", id, "; the newest ", kJobsMax, " are kept"));
}

JobCounts MoveJobs::Counts(absl::Time now) const {
  JobCounts counts;
  for (const auto& [id, job] : jobs_) ++counts.jobs[job.state];
  if (!running_) return counts;
  counts.units_left = running_->waiting.size() + running_->open.size();
  counts.awaited_node = WaitsFor().node;
  return counts;
}

JobWait MoveJobs::WaitsFor() const {
  return copies_.is_over() ? driver_.WaitsFor() : copies_.WaitsFor();
}

std::vector<JobView> MoveJobs::List(absl::Time now) const {
  std::vector<JobView> views;
  for (auto entry = jobs_.rbegin(); entry != jobs_.rend(); ++entry) {
    views.push_back(ViewOf(entry->second, now));
  }
  return views;
}

std::vector<JobView> MoveJobs::Newest(std::size_t count, absl::Time now) const {
  std::vector<JobView> views;
  for (auto entry = jobs_.rbegin(); entry != jobs_.rend() && views.size() < count; ++entry) {
    views.push_back(SummaryOf(entry->second, now));
  }
  return views;
}

JobView MoveJobs::ViewOf(const MoveJob& job, absl::Time now) const {
  JobView view = SummaryOf(job, now);
  view.job.runs = job.runs;
  view.job.copies = job.copies;
  view.job.goal = job.goal;
  return view;
}

JobView MoveJobs::SummaryOf(const MoveJob& job, absl::Time now) const {
  JobView view{.job = {.id = job.id,
                       .description = job.description,
                       .state = job.state,
                       .error = job.error,
                       .bytes_per_second = job.bytes_per_second,
                       .units_in_flight = job.units_in_flight,
                       .started = job.started,
                       .ended = job.ended,
                       .runs = {},
                       .units_moved = job.units_moved,
                       .bytes_moved = job.bytes_moved,
                       .pauses = job.pauses},
               .units_total = UnitsOf(job),
               .bytes_total = BytesOf(job),
               .rooms = {}};
  if (job.state == JobState::kQueued) {
    const MoveJob* const first = running();
    if (first != nullptr) view.wait.what = absl::StrCat("waits for ", NameOf(*first));
    return view;
  }
  if (!running_ || running_->id != job.id) {
    view.seconds_left = 0;
    return view;
  }
  view.job.units_moved = running_->moved + copies_.done_count();
  view.job.bytes_moved = running_->bytes_sent;
  view.job.pauses = PausesOf(running_->pauses);
  view.units_open = driver_.open_count();
  view.units_handed_over = driver_.handed_over_count();
  view.wait = WaitsFor();
  const auto moved = static_cast<double>(running_->moved - running_->moved_before);
  const auto left = static_cast<double>(view.units_total - view.job.units_moved);
  if (moved > 0) view.seconds_left = absl::ToDoubleSeconds(now - running_->since) / moved * left;
  return view;
}

void MoveJobs::OnReports(NodeId node, std::span<const UnitReport> reports, absl::Time now) {
  for (const UnitReport& report : reports) {
    if (IsCopy(report.unit)) {
      copies_.OnReport(node, report);
      continue;
    }
    Count(report);
    driver_.OnReport(node, report, now);
  }
  Advance(now);
}

void MoveJobs::Count(const UnitReport& report) {
  if (!running_ || report.kind != UnitReport::Kind::kProgress) return;
  const absl::StatusOr<DeviceId> owner = OwnerInPlan(*cluster_.plan(), report.unit);
  if (!owner.ok()) return;
  Sent& sent = running_->sent[report.unit];
  if (report.move < sent.move) return;
  if (report.move > sent.move) sent = {.move = report.move};
  if (report.bytes_sent > sent.bytes) {
    running_->bytes_sent += report.bytes_sent - sent.bytes;
    sent.bytes = report.bytes_sent;
  }
  if (report.frozen > absl::ZeroDuration() && !sent.has_paused) {
    sent.has_paused = true;
    running_->pauses.push_back(report.frozen);
  }
}

void MoveJobs::Tick(absl::Time now) {
  if (!running_) return;
  driver_.Tick(now);
  const MoveJob& job = *running();
  if (job.state == JobState::kCancelling) {
    driver_.CancelAll(job.error);
    copies_.Cancel();
  }
  Advance(now);
}

void MoveJobs::Advance(absl::Time now) {
  if (!running_) return;
  Flush(now);
  TakeEnded(now);
  copies_.Tick(running()->state == JobState::kRunning, NameOf(*running()), now);
  if (!copies_.error().empty() && running()->state != JobState::kCancelling) {
    GiveUp(copies_.error());
  }
  OpenMore(now);
  Flush(now);
  FinishIfOver(now);
}

void MoveJobs::Flush(absl::Time now) {
  const MoveJob& job = *running();
  const bool more_come = job.state == JobState::kRunning && !running_->waiting.empty();
  driver_.Flush(NameOf(job), job.started, more_come, now);
}

void MoveJobs::TakeEnded(absl::Time now) {
  const MoveJob& job = *running();
  for (const UnitDriver::Ended& ended : driver_.TakeEnded()) {
    const auto entry = running_->open.find(ended.unit);
    if (entry == running_->open.end()) continue;
    WaitingUnit waiting = entry->second;
    running_->open.erase(entry);
    if (ended.moved) {
      CountMoved(waiting.run);
      continue;
    }
    waiting.not_before = now + kRetryAfter;
    ++waiting.attempts;
    LogWarning("coordinator", "the move of a unit was aborted unit=", KeyOf(ended.unit),
               " attempts=", waiting.attempts, " reason=", ended.reason);
    if (waiting.attempts >= kAttemptsMax && job.state != JobState::kCancelling) {
      GiveUp(absl::StrCat("unit ", KeyOf(ended.unit), " could not be moved in ", waiting.attempts,
                          " attempts: ", ended.reason));
    }
    running_->waiting.push_back(waiting);
  }
}

void MoveJobs::CountMoved(std::size_t r) {
  const MoveRun& run = running()->runs[r];
  ++running_->moved;
  running_->bytes_left[r] -= run.bytes / run.units();
}

void MoveJobs::GiveUp(const std::string& reason) {
  MoveJob& job = jobs_.at(running_->id);
  job.state = JobState::kCancelling;
  job.error = reason;
  PutOrWarn(job);
  driver_.CancelAll(reason);
  copies_.Cancel();
}

void MoveJobs::OpenMore(absl::Time now) {
  if (!copies_.is_over()) return;
  const MoveJob& job = *running();
  std::deque<WaitingUnit> later;
  // Units that wait for their plan take no bandwidth: others are copied meanwhile.
  std::size_t copying = driver_.copying_count();
  while (job.state == JobState::kRunning && !running_->waiting.empty() &&
         copying < job.units_in_flight) {
    const WaitingUnit next = running_->waiting.front();
    running_->waiting.pop_front();
    if (next.not_before > now) {
      later.push_back(next);
      continue;
    }
    const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *cluster_.plan(), next.unit);
    if (stored.ok() && IsWhereItGoes(job, job.runs[next.run], next.unit, stored->record)) {
      CountMoved(next.run);
      continue;
    }
    running_->open.emplace(next.unit, next);
    const absl::Status opened =
        driver_.Open(next.unit, WayOf(job, next.run, running_->final_rows[next.run]), now);
    if (opened.ok()) {
      ++copying;
      continue;
    }
    running_->open.erase(next.unit);
    later.push_back(next);
    GiveUp(Message(opened));
  }
  for (const WaitingUnit& unit : later) running_->waiting.push_back(unit);
}

void MoveJobs::FinishIfOver(absl::Time now) {
  MoveJob job = *running();
  const bool is_cancelled = job.state == JobState::kCancelling;
  if (driver_.open_count() > 0 || !copies_.is_over()) return;
  if (!running_->waiting.empty() && !is_cancelled) return;
  job.state = JobState::kDone;
  if (is_cancelled) job.state = job.error.empty() ? JobState::kCancelled : JobState::kFailed;
  job.ended = WholeMillis(now);
  job.units_moved = running_->moved + copies_.done_count();
  job.bytes_moved = running_->bytes_sent;
  job.pauses = PausesOf(running_->pauses);
  if (const absl::Status stored = PutEnd(job); !stored.ok()) {  // Tried again at the next event.
    LogError("coordinator", "cannot record the end of a job: ", Message(stored));
    return;
  }
  LogInfo("coordinator", "job ended id=", job.id, " units_moved=", job.units_moved,
          " error=", job.error);
  running_.reset();
  jobs_.at(job.id) = std::move(job);
}

absl::Status MoveJobs::PutEnd(const MoveJob& job) {
  const ForgetGoal* const goal = ForgetOf(job);
  const bool is_there = goal != nullptr && cluster_.plan()->FindNode(NodeId{goal->id}) != nullptr;
  if (job.state != JobState::kDone || !is_there) return Put(job);
  PlanEdit edit{.drop_node = NodeId{goal->id},
                .cause = absl::StrCat("node ", goal->node, " forgotten by ", NameOf(job)),
                .at = job.ended};
  edit.writes.push_back({KeyOfJob(job.id), MoveJobToJson(job)});
  CrashPoint("jobs.forget");
  const absl::Status written = cluster_.PutPlan(std::move(edit)).status();
  CrashPoint("jobs.forget_done");
  return written;
}

void MoveJobs::PutOrWarn(const MoveJob& job) {
  const absl::Status stored = Put(job);
  if (!stored.ok()) LogWarning("coordinator", "cannot store a job: ", Message(stored));
}

void MoveJobs::Abandon(const std::string& reason, absl::Time now) {
  if (!running_) return;
  MoveJob& job = jobs_.at(running_->id);
  job.state = JobState::kFailed;
  job.error = reason;
  job.ended = WholeMillis(now);
  PutOrWarn(job);
  LogWarning("coordinator", "job abandoned id=", job.id, " reason=\"", reason, "\"");
  running_.reset();
}

std::vector<SendOrders> MoveJobs::TakeOrders() {
  const std::uint64_t rate = running_ ? running()->bytes_per_second : 0;
  std::vector<SendOrders> effects;
  for (auto& [node, orders] : driver_.TakeOrders(rate)) {
    effects.push_back({node, std::move(orders)});
  }
  for (auto& [node, orders] : copies_.TakeOrders()) effects.push_back({node, std::move(orders)});
  return effects;
}

}  // namespace embla
