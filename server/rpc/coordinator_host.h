// Gives the pure Coordinator a thread: runs one task at a time on it, ticks it, and carries out its
// effects. The store may wait for a disk, so none of this happens on gRPC's threads.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "core/metrics/metrics.h"
#include "core/plan/plan.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/session_watchers.h"

namespace embla::v1 {
class Plan;
}  // namespace embla::v1

namespace embla {

// Hears of every newer plan. Must not block or call the host.
class PlanListener {
 public:
  virtual ~PlanListener() = default;
  virtual void OnPlan(const PlanPtr& plan) = 0;  // On the host's thread.
  // For the link of `node`; likewise.
  virtual void OnOrders(NodeId, const std::vector<UnitOrder>&) {}
  virtual void OnSessions(const SessionNews&) {}  // Likewise, all of them.
  virtual void OnStop() = 0;                      // The coordinator is stopping.
};

struct CoordinatorHostOptions {
  std::size_t tasks_queued_max = 4096;
  absl::Duration tick = absl::Milliseconds(200);
};

// Thread safety: every public method may be called from any thread, the destructor excepted.
// Lock order: listeners_mu_, then a listener's own. queue_mu_ is never held together with another.
class CoordinatorHost {
 public:
  using Task = std::function<void(Coordinator& coordinator, absl::Time now)>;
  using ChangeDone = std::function<void(const CompleteChange&)>;

  // `clock` and `metrics` (may be null) are not owned and outlive the host.
  CoordinatorHost(std::unique_ptr<Coordinator> coordinator, const CoordinatorHostOptions& options,
                  const Clock& clock, Metrics* metrics);
  // Calls Stop.
  ~CoordinatorHost();

  // Runs what was posted, fails every change that is awaited with UNAVAILABLE, and ends the thread.
  void Stop();

  // Runs `task` on the host's thread, in the order of the calls, and carries out the effects.
  // Errors: ResourceExhausted (the queue is full), Unavailable (stopped); `task` is not run.
  absl::Status Post(Task task);

  // `done` runs on the host's thread when the change completes. Call within a task, in the one that
  // started the change.
  void AwaitChange(ChangeId change, ChangeDone done);

  // Call within a task.
  void CountHeartbeat(NodeId node);

  // They never change.
  const CoordinatorOptions& coordinator_options() const { return coordinator_->options(); }

  // The current plan; never null.
  PlanPtr plan() const;
  // `plan` on the wire: made once for all who get the current one.
  std::shared_ptr<const v1::Plan> MessageOf(const Plan& plan) const;

  // Whose clients are there.
  SessionWatchers& watchers() { return watchers_; }
  // Of the coordinator.
  const ClusterKey& key() const { return *key_; }

  // When RemoveListener returns, `listener` is not running and will not run again.
  void AddListener(PlanListener* listener);
  void RemoveListener(PlanListener* listener);
  // Tells every listener, also one that is added later, that the coordinator is stopping. Call
  // before RpcServer::Shutdown, which waits for open streams.
  void StopListeners();

 private:
  void Run();
  void RunTask(const Task& task);
  void SetPlan(const PlanPtr& plan);
  void Carry(const Effect& effect);
  void UpdateMetrics();

  const CoordinatorHostOptions options_;
  const Clock& clock_;      // Not owned; outlives this object.
  Metrics* const metrics_;  // Not owned; may be null.

  // Owned by the host's thread.
  const std::unique_ptr<Coordinator> coordinator_;
  std::map<ChangeId, ChangeDone> awaited_;
  CoordinatorMetrics counters_;
  struct MeteredNode {
    std::string name;
    NodeMetrics metrics;
  };
  std::map<NodeId, MeteredNode> node_metrics_;
  ClusterView counted_;  // What counters_ have of it.

  Mutex queue_mu_;
  CondVar queue_changed_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(queue_mu_);
  bool stopping_ ABSL_GUARDED_BY(queue_mu_) = false;

  mutable Mutex plan_mu_;
  PlanPtr plan_ ABSL_GUARDED_BY(plan_mu_);
  std::shared_ptr<const v1::Plan> message_ ABSL_GUARDED_BY(plan_mu_);  // Of plan_.

  const std::shared_ptr<const ClusterKey> key_;
  SessionWatchers watchers_;

  Mutex listeners_mu_;
  std::vector<PlanListener*> listeners_ ABSL_GUARDED_BY(listeners_mu_);
  bool listeners_stopped_ ABSL_GUARDED_BY(listeners_mu_) = false;

  std::thread thread_;
};

}  // namespace embla
