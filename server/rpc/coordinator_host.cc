#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/metrics/names.h"
#include "core/wire/plan_codec.h"

namespace embla {
namespace {

// To the next tick when the coordinator wants one soon.
constexpr absl::Duration kSoon = absl::Milliseconds(10);
// Plans kept to make deltas: a receiver with an older plan gets the newest whole.
constexpr std::size_t kRecentPlansMax = 64;

constexpr std::pair<JobState, std::string_view> kJobStates[] = {
    {JobState::kQueued, "queued"}, {JobState::kRunning, "running"},
    {JobState::kPaused, "paused"}, {JobState::kCancelling, "cancelling"},
    {JobState::kDone, "done"},     {JobState::kCancelled, "cancelled"},
    {JobState::kFailed, "failed"}};

}  // namespace

CoordinatorHost::CoordinatorHost(std::unique_ptr<Coordinator> coordinator,
                                 const CoordinatorHostOptions& options, const Clock& clock,
                                 Metrics* metrics)
    : options_(options),
      clock_(clock),
      metrics_(metrics),
      coordinator_(std::move(coordinator)),
      counters_(metrics),
      key_(coordinator_->options().key) {
  SetPlan(coordinator_->GetPlan());
  if (metrics != nullptr) {
    for (const auto& [state, name] : kJobStates) {
      job_counts_[state] = metrics->MakeGauge(MetricNamed("embla_jobs"), {name});
    }
    job_units_left_ = metrics->MakeGauge(MetricNamed("embla_job_units_left"));
  }
  UpdateMetrics();
  thread_ = std::thread([this] { Run(); });
}

CoordinatorHost::~CoordinatorHost() {
  Stop();
  if (metrics_ == nullptr) return;
  // The process may go on, as a standby that knows nothing of nodes and jobs.
  for (const auto& [node, metered] : node_metrics_) NodeMetrics::Remove(*metrics_, metered.name);
  UpdateJobMetrics({});
}

void CoordinatorHost::Stop() {
  const absl::Status status = absl::UnavailableError("the coordinator is stopping");
  {
    MutexLock lock(queue_mu_);
    if (stopping_) return;
    stopping_ = true;
    if (refusal_.ok()) refusal_ = status;
  }
  queue_changed_.NotifyAll();
  thread_.join();
  Refuse(status);
}

void CoordinatorHost::Refuse(const absl::Status& status) {
  std::deque<Work> waiting;
  std::function<void()> tell;
  {
    MutexLock lock(queue_mu_);
    if (refusal_.ok()) refusal_ = status;
    tell.swap(tell_refusal_);
    waiting.swap(of_nodes_);
    std::ranges::move(queue_, std::back_inserter(waiting));
    queue_.clear();
  }
  if (tell) tell();
  for (const Work& work : waiting) work.answer(status);
  for (const auto& [change, done] : std::exchange(awaited_, {})) {
    done({.id = change,
          .status = absl::UnavailableError(
              absl::StrCat(status.message(), "; look at the plan for the outcome")),
          .tables = {},
          .plan_version = {}});
  }
}

void CoordinatorHost::Post(Task task, Answer answer) {
  absl::Status refused;
  {
    MutexLock lock(queue_mu_);
    refused = refusal_;
    if (refused.ok() && queue_.size() >= options_.tasks_queued_max) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat("the coordinator has ", queue_.size(), " requests to do: try later"));
    }
    if (refused.ok()) queue_.push_back({std::move(task), std::move(answer)});
  }
  if (!refused.ok()) return answer(refused);
  queue_changed_.NotifyOne();
}

void CoordinatorHost::PostOfNode(Task task, Answer answer) {
  absl::Status refused;
  {
    MutexLock lock(queue_mu_);
    refused = refusal_;
    if (refused.ok()) of_nodes_.push_back({std::move(task), std::move(answer)});
  }
  if (!refused.ok()) return answer(refused);
  queue_changed_.NotifyOne();
}

void CoordinatorHost::PostHeartbeat(const NodeProcess& process, HeartbeatInfo info) {
  const absl::Time now = clock_.Now();
  {
    MutexLock lock(queue_mu_);
    heartbeats_[process] = {std::move(info), now};
  }
  queue_changed_.NotifyOne();
}

void CoordinatorHost::AwaitChange(ChangeId change, ChangeDone done) {
  awaited_[change] = std::move(done);
}

absl::Status CoordinatorHost::status() const {
  MutexLock lock(queue_mu_);
  return refusal_;
}

void CoordinatorHost::OnRefusal(std::function<void()> tell) {
  {
    MutexLock lock(queue_mu_);
    if (refusal_.ok()) tell.swap(tell_refusal_);
  }
  if (tell) tell();
}

PlanPtr CoordinatorHost::plan() const {
  MutexLock lock(plan_mu_);
  return plan_;
}

std::shared_ptr<const v1::PlanDelta> CoordinatorHost::MessageOf(const PlanPtr& to,
                                                                PlanVersion from) const {
  PlanPtr base = std::make_shared<const Plan>();
  bool is_current = false;
  {
    MutexLock lock(plan_mu_);
    for (const PlanPtr& plan : recent_) {
      if (plan->version() == from) base = plan;
    }
    is_current = to == plan_;
    const auto made = messages_.find(base->version());
    if (is_current && made != messages_.end()) return made->second;
  }
  v1::PlanDelta message = wire::ToMessage(DeltaBetween(*base, *to));
  message.set_source(source_);
  auto shared = std::make_shared<const v1::PlanDelta>(std::move(message));
  MutexLock lock(plan_mu_);
  if (to == plan_) messages_[base->version()] = shared;
  return shared;
}

void CoordinatorHost::SetPlan(const PlanPtr& plan) {
  MutexLock lock(plan_mu_);
  plan_ = plan;
  messages_.clear();
  recent_.push_back(plan);
  if (recent_.size() > kRecentPlansMax) recent_.pop_front();
}

void CoordinatorHost::SetPlans(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    if (const auto* publish = std::get_if<PublishPlan>(&effect)) SetPlan(publish->plan);
  }
}

void CoordinatorHost::AddListener(PlanListener* listener) {
  MutexLock lock(listeners_mu_);
  listeners_.push_back(listener);
  if (listeners_stopped_) listener->OnStop();
}

void CoordinatorHost::RemoveListener(PlanListener* listener) {
  MutexLock lock(listeners_mu_);
  std::erase(listeners_, listener);
}

void CoordinatorHost::StopListeners() {
  MutexLock lock(listeners_mu_);
  listeners_stopped_ = true;
  for (PlanListener* const listener : listeners_) listener->OnStop();
}

void CoordinatorHost::Run() {
  looked_ = clock_.Now();
  absl::Time next_tick = looked_ + options_.tick;
  while (AwaitWork(next_tick)) {
    if (!RunBatch(next_tick)) return;
    if (coordinator_->wants_tick()) next_tick = std::min(next_tick, clock_.Now() + kSoon);
  }
}

bool CoordinatorHost::AwaitWork(absl::Time next_tick) {
  MutexLock lock(queue_mu_);
  while (!stopping_ && queue_.empty() && of_nodes_.empty() && heartbeats_.empty()) {
    const absl::Duration left = next_tick - clock_.Now();
    if (left <= absl::ZeroDuration() || !queue_changed_.WaitFor(queue_mu_, left)) break;
  }
  return !stopping_;
}

bool CoordinatorHost::TakeWork(Work& work) {
  MutexLock lock(queue_mu_);
  if (stopping_ || (queue_.empty() && of_nodes_.empty())) return false;
  nodes_turn_ = queue_.empty() || (nodes_turn_ && !of_nodes_.empty());
  std::deque<Work>& from = nodes_turn_ ? of_nodes_ : queue_;
  work = std::move(from.front());
  from.pop_front();
  nodes_turn_ = !nodes_turn_;
  return true;
}

bool CoordinatorHost::RunBatch(absl::Time& next_tick) {
  const absl::Time began = clock_.Now();
  // After a long pause, for instance of a stopped process, heartbeats that came meanwhile are read
  // before the tick judges them.
  if (began - std::exchange(looked_, began) > coordinator_->options().dead_after / 2) {
    next_tick = began + options_.tick;
  }
  std::vector<Outcome> outcomes;
  coordinator_->BeginWrites();
  HearHeartbeats(outcomes);
  Work work;
  while (outcomes.size() < options_.batch_tasks_max &&
         clock_.Now() - began <= options_.batch_time_max && TakeWork(work)) {
    work.task(*coordinator_, clock_.Now());
    outcomes.push_back({std::move(work.answer), TakeEffects()});
  }
  if (clock_.Now() >= next_tick) {
    HearHeartbeats(outcomes);
    for (const auto& [session, watches] : watchers_.Take()) {
      coordinator_->HearSession(session, watches);
    }
    coordinator_->Tick(clock_.Now());
    outcomes.push_back({nullptr, TakeEffects()});
    next_tick = clock_.Now() + options_.tick;
    UpdateMetrics();
  }
  const absl::Status durable = coordinator_->EndWrites();
  for (const Outcome& outcome : outcomes) {
    // The plan that an answer speaks of is there before the answer.
    if (durable.ok()) SetPlans(outcome.effects);
    if (outcome.answer) outcome.answer(durable);
    if (!durable.ok()) continue;
    for (const Effect& effect : outcome.effects) Carry(effect);
  }
  if (durable.ok()) return true;
  LogError("coordinator", "no more requests are taken reason=", Message(durable));
  Refuse(durable);
  return false;
}

void CoordinatorHost::HearHeartbeats(std::vector<Outcome>& outcomes) {
  std::map<NodeProcess, Heartbeat> heard;
  {
    MutexLock lock(queue_mu_);
    heard.swap(heartbeats_);
  }
  for (const auto& [process, heartbeat] : heard) {
    const absl::Status status =
        coordinator_->Heartbeat(process.node, process.boot_id, heartbeat.info, heartbeat.came);
    if (!status.ok()) {
      MutexLock lock(listeners_mu_);
      for (PlanListener* const listener : listeners_) listener->OnRefusedHeartbeat(process, status);
    }
    // Nodes have metrics from the plan that brought them.
    const auto metrics = node_metrics_.find(process.node);
    if (metrics != node_metrics_.end()) metrics->second.metrics.heartbeats.Add();
  }
  if (!heard.empty()) outcomes.push_back({nullptr, TakeEffects()});
}

// Orders go first: the sooner both ends of a move hear of its commit, the fewer lookups of trainers
// with the new plan come to a node that does not serve the unit yet.
std::vector<Effect> CoordinatorHost::TakeEffects() {
  std::vector<Effect> effects = coordinator_->TakeEffects();
  std::stable_partition(effects.begin(), effects.end(), [](const Effect& effect) {
    return std::holds_alternative<SendOrders>(effect);
  });
  return effects;
}

void CoordinatorHost::Carry(const Effect& effect) {
  if (const auto* publish = std::get_if<PublishPlan>(&effect)) {
    counters_.plan_changes.Add();
    UpdateMetrics();
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) listener->OnPlan(publish->plan);
    return;
  }
  if (const auto* send = std::get_if<SendOrders>(&effect)) {
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) listener->OnOrders(send->node, send->orders);
    return;
  }
  if (const auto* sessions = std::get_if<PublishSessions>(&effect)) {
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) listener->OnSessions(sessions->news);
    return;
  }
  if (const auto* send = std::get_if<SendTestimony>(&effect)) {
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) {
      listener->OnTestimony(send->node, send->testimony);
    }
    return;
  }
  if (const auto* send = std::get_if<SendLogLevel>(&effect)) {
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) listener->OnLogLevel(send->node, send->level);
    return;
  }
  if (const auto* serve = std::get_if<LetServe>(&effect)) {
    MutexLock lock(listeners_mu_);
    for (PlanListener* const listener : listeners_) listener->OnServe(serve->node);
    return;
  }
  const auto& complete = std::get<CompleteChange>(effect);
  const auto awaited = awaited_.find(complete.id);
  if (awaited == awaited_.end()) return;
  const ChangeDone done = std::move(awaited->second);
  awaited_.erase(awaited);
  done(complete);
}

void CoordinatorHost::UpdateJobMetrics(JobCounts counts) {
  for (const auto& [state, gauge] : job_counts_) {
    gauge.Set(static_cast<double>(counts.jobs[state]));
  }
  job_units_left_.Set(static_cast<double>(counts.units_left));
}

void CoordinatorHost::UpdateMetrics() {
  if (metrics_ == nullptr) return;
  const ClusterView view = coordinator_->Status();
  counters_.plan_version.Set(static_cast<double>(ToInt(view.plan_version)));
  counters_.tables.Set(view.tables);
  const auto more = [](std::uint64_t now, std::uint64_t before) {
    return static_cast<double>(now - before);
  };
  counters_.sessions_opened.Add(more(view.sessions_opened, counted_.sessions_opened));
  counters_.sessions_closed.Add(more(view.sessions_closed, counted_.sessions_closed));
  counters_.sessions_expired.Add(more(view.sessions_expired, counted_.sessions_expired));
  counters_.sessions_open.Set(static_cast<double>(view.sessions_open));
  counters_.nodes_died.Add(more(view.nodes_died, counted_.nodes_died));
  counters_.rows_lost.Add(more(view.rows_lost, counted_.rows_lost));
  counted_ = view;
  counters_.tables_aside.Set(view.tables_aside);
  counters_.store_generation.Set(static_cast<double>(view.generation));
  const JobCounts jobs = coordinator_->CountJobs(clock_.Now());
  UpdateJobMetrics(jobs);
  const std::vector<NodeView> nodes = coordinator_->Nodes();
  // First those that were forgotten: a node of another id may have the name.
  std::erase_if(node_metrics_, [&](const auto& entry) {
    const bool is_gone =
        std::ranges::none_of(nodes, [&](const NodeView& n) { return n.spec.id == entry.first; });
    if (is_gone) NodeMetrics::Remove(*metrics_, entry.second.name);
    return is_gone;
  });
  for (const NodeView& node : nodes) {
    auto [entry, inserted] = node_metrics_.try_emplace(node.spec.id);
    if (inserted) entry->second = {node.spec.name, NodeMetrics(metrics_, node.spec.name)};
    entry->second.metrics.live.Set(node.live() ? 1 : 0);
    entry->second.metrics.plan_version.Set(static_cast<double>(ToInt(node.plan_version)));
    entry->second.metrics.job_awaits.Set(node.spec.name == jobs.awaited_node ? 1 : 0);
  }
}

}  // namespace embla
