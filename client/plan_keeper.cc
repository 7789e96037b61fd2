#include "client/plan_keeper.h"

#include <algorithm>
#include <utility>

namespace embla::client {
namespace {

// A coordinator that does not answer in this time is as good as down.
constexpr absl::Duration kRefreshTimeout = absl::Seconds(2);

}  // namespace

PlanKeeper::PlanKeeper(CoordinatorChannel& coordinator, NodeDirectory& nodes, const Timer& timer,
                       ClientMetrics metrics)
    : coordinator_(coordinator),
      nodes_(nodes),
      timer_(timer),
      metrics_(metrics),
      routes_(std::make_shared<Routes>(std::make_shared<Plan>())),
      refresher_([this] { RefreshLoop(); }) {}

PlanKeeper::~PlanKeeper() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  refresher_.join();
}

RoutesPtr PlanKeeper::routes() const {
  MutexLock lock(mu_);
  return routes_;
}

void PlanKeeper::Offer(PlanPtr plan) {
  if (plan->version() <= routes()->plan().version()) return;
  // Channels first: whoever sees the plan finds its nodes.
  nodes_.Install(*plan);
  const RoutesPtr before = this->routes();
  auto routes = std::make_shared<Routes>(std::move(plan), before.get());
  MutexLock lock(mu_);
  if (routes->plan().version() <= routes_->plan().version()) return;
  metrics_.plan_version.Set(static_cast<double>(ToInt(routes->plan().version())));
  metrics_.plan_refreshes.Add();
  routes_ = std::move(routes);
}

void PlanKeeper::Follow(PlanVersion routed_by, NodeId node, PlanVersion its_plan,
                        std::span<const UnitHint> hints) {
  if (hints.empty()) return;
  MutexLock one_at_a_time(hints_mu_);
  const RoutesPtr before = routes();
  if (before->plan().version() != routed_by) return;
  RoutesPtr next = Routes::Following(*before, hints, node, its_plan);
  if (next == nullptr) return;
  MutexLock lock(mu_);
  if (routes_ == before) routes_ = std::move(next);
}

absl::Status PlanKeeper::Refresh(absl::Time deadline) {
  absl::StatusOr<PlanPtr> plan = coordinator_.GetPlan(routes()->plan_ptr(), deadline);
  if (!plan.ok()) return plan.status();
  if (*plan != nullptr) Offer(*std::move(plan));
  return absl::OkStatus();
}

void PlanKeeper::RefreshThen(absl::Time deadline, std::function<void()> then) {
  MutexLock lock(mu_);
  waiting_.push_back({deadline, std::move(then)});
  changed_.NotifyAll();
}

void PlanKeeper::RefreshLoop() {
  while (true) {
    std::vector<Waiting> asked;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mu_);
      if (waiting_.empty()) return;
      asked.swap(waiting_);
    }
    // The callers that wait look at routes(); an error here only means that there is nothing newer.
    absl::Time deadline = timer_.Now() + kRefreshTimeout;
    for (const Waiting& waiting : asked) deadline = std::min(deadline, waiting.deadline);
    (void)Refresh(deadline);
    for (const Waiting& waiting : asked) waiting.then();
  }
}

}  // namespace embla::client
