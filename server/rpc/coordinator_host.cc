#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/wire/plan_codec.h"

namespace embla {
namespace {

// To the next tick when the coordinator wants one soon.
constexpr absl::Duration kSoon = absl::Milliseconds(10);

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
  UpdateMetrics();
  thread_ = std::thread([this] { Run(); });
}

CoordinatorHost::~CoordinatorHost() { Stop(); }

void CoordinatorHost::Stop() {
  {
    MutexLock lock(queue_mu_);
    if (stopping_) return;
    stopping_ = true;
  }
  queue_changed_.NotifyAll();
  thread_.join();
  for (const auto& [change, done] : awaited_) {
    done({.id = change,
          .status = absl::UnavailableError(
              "the coordinator is stopping; look at the plan for the outcome"),
          .table = {},
          .plan_version = {}});
  }
  awaited_.clear();
}

absl::Status CoordinatorHost::Post(Task task) {
  {
    MutexLock lock(queue_mu_);
    if (stopping_) return absl::UnavailableError("the coordinator is stopping");
    if (queue_.size() >= options_.tasks_queued_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the coordinator has ", queue_.size(), " requests to do: try later"));
    }
    queue_.push_back(std::move(task));
  }
  queue_changed_.NotifyOne();
  return absl::OkStatus();
}

void CoordinatorHost::AwaitChange(ChangeId change, ChangeDone done) {
  awaited_[change] = std::move(done);
}

void CoordinatorHost::CountHeartbeat(NodeId node) {
  // Nodes have metrics from the plan that brought them.
  const auto entry = node_metrics_.find(node);
  if (entry != node_metrics_.end()) entry->second.metrics.heartbeats.Add();
}

PlanPtr CoordinatorHost::plan() const {
  MutexLock lock(plan_mu_);
  return plan_;
}

std::shared_ptr<const v1::Plan> CoordinatorHost::MessageOf(const Plan& plan) const {
  {
    MutexLock lock(plan_mu_);
    if (message_->version() == ToInt(plan.version())) return message_;
  }
  return std::make_shared<const v1::Plan>(wire::ToMessage(plan));
}

void CoordinatorHost::SetPlan(const PlanPtr& plan) {
  auto message = std::make_shared<const v1::Plan>(wire::ToMessage(*plan));
  MutexLock lock(plan_mu_);
  plan_ = plan;
  message_ = std::move(message);
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
  absl::Time next_tick = clock_.Now() + options_.tick;
  while (true) {
    Task task;
    {
      MutexLock lock(queue_mu_);
      while (queue_.empty() && !stopping_) {
        const absl::Duration left = next_tick - clock_.Now();
        if (left <= absl::ZeroDuration() || !queue_changed_.WaitFor(queue_mu_, left)) break;
      }
      if (queue_.empty() && stopping_) return;
      if (!queue_.empty()) {
        task = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (task) RunTask(task);
    if (clock_.Now() >= next_tick) {
      RunTask([this](Coordinator& coordinator, absl::Time now) {
        for (const auto& [session, watches] : watchers_.Take()) {
          coordinator.HearSession(session, watches);
        }
        coordinator.Tick(now);
      });
      UpdateMetrics();
      next_tick = clock_.Now() + options_.tick;
    }
    if (coordinator_->wants_tick()) next_tick = std::min(next_tick, clock_.Now() + kSoon);
  }
}

// Orders go first: the sooner both ends of a move hear of its commit, the fewer lookups of trainers
// with the new plan come to a node that does not serve the unit yet.
void CoordinatorHost::RunTask(const Task& task) {
  task(*coordinator_, clock_.Now());
  std::vector<Effect> effects = coordinator_->TakeEffects();
  std::stable_partition(effects.begin(), effects.end(), [](const Effect& effect) {
    return std::holds_alternative<SendOrders>(effect);
  });
  for (const Effect& effect : effects) Carry(effect);
}

void CoordinatorHost::Carry(const Effect& effect) {
  if (const auto* publish = std::get_if<PublishPlan>(&effect)) {
    SetPlan(publish->plan);
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
  const auto& complete = std::get<CompleteChange>(effect);
  const auto awaited = awaited_.find(complete.id);
  if (awaited == awaited_.end()) return;
  const ChangeDone done = std::move(awaited->second);
  awaited_.erase(awaited);
  done(complete);
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
  counters_.rows_lost.Add(more(view.rows_lost, counted_.rows_lost));
  counted_ = view;
  counters_.tables_aside.Set(view.tables_aside);
  counters_.store_generation.Set(static_cast<double>(view.generation));
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
  }
}

}  // namespace embla
