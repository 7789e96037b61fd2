// Gives the pure Coordinator a thread: runs tasks on it, ticks it, and carries out its effects. The
// store may wait for a disk, so none of this happens on gRPC's threads.
//
// Tasks that wait are run as one batch: what all of them wrote becomes durable by one sync, and
// only then are they answered and their effects carried out. So the number of syncs does not grow
// with the number of those who wait, and a slow disk makes batches larger instead of the queue
// longer.
//
// Reports of nodes never wait for others: heartbeats lie in no queue (of each process the latest is
// kept, with the time at which it came) and are heard before anything else is done, above all
// before a node could be declared dead; the other reports of nodes take turns with the tasks of
// clients and operators, and are refused by no limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/random.h"
#include "core/metrics/instruments.h"
#include "core/metrics/metrics.h"
#include "core/plan/plan.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/session_watchers.h"

namespace embla::v1 {
class PlanDelta;
}  // namespace embla::v1

namespace embla {

// One process of one node.
struct NodeProcess {
  NodeId node{};
  std::uint64_t boot_id = 0;
  auto operator<=>(const NodeProcess&) const = default;
};

// Hears of every newer plan. Must not block or call the host.
class PlanListener {
 public:
  virtual ~PlanListener() = default;
  virtual void OnPlan(const PlanPtr& plan) = 0;  // On the host's thread.
  // For the link of `node`; likewise.
  virtual void OnOrders(NodeId, const std::vector<UnitOrder>&) {}
  virtual void OnSessions(const SessionNews&) {}  // Likewise, all of them.
  // For the link of the node; see OnOrders.
  virtual void OnTestimony(NodeId, const std::string&) {}
  virtual void OnServe(NodeId) {}               // Likewise.
  virtual void OnLogLevel(NodeId, LogLevel) {}  // Likewise.
  // A heartbeat of `process` was refused: it is not the registered one. Likewise.
  virtual void OnRefusedHeartbeat(const NodeProcess&, const absl::Status&) {}
  virtual void OnStop() = 0;  // The coordinator is stopping.
};

struct CoordinatorHostOptions {
  std::size_t tasks_queued_max = 16384;  // Limit for clients and operators.
  std::size_t batch_tasks_max = 512;
  absl::Duration batch_time_max = absl::Milliseconds(50);  // No task begins later than that.
  absl::Duration tick = absl::Milliseconds(200);
};

// Thread safety: every public method may be called from any thread, the destructor excepted.
// Lock order: listeners_mu_, then a listener's own. queue_mu_ is never held together with another.
class CoordinatorHost {
 public:
  using Task = std::function<void(Coordinator& coordinator, absl::Time now)>;
  using Answer = std::function<void(const absl::Status& status)>;
  using ChangeDone = std::function<void(const CompleteChange&)>;

  // `clock` and `metrics` (may be null) are not owned and outlive the host. Liveness of nodes goes
  // by `clock`, so it should be a steady one.
  CoordinatorHost(std::unique_ptr<Coordinator> coordinator, const CoordinatorHostOptions& options,
                  const Clock& clock, Metrics* metrics);
  // Calls Stop.
  ~CoordinatorHost();

  // Finishes the task that runs, answers those that wait, and fails every change that is awaited,
  // with UNAVAILABLE; ends the thread.
  void Stop();

  // Runs `task` on the host's thread, in the order of the calls, then calls `answer` once: with OK
  // when all that the task wrote is durable; then the effects are carried out. With an error the
  // task has not run, or what it wrote may be lost: ResourceExhausted (the queue is full; `answer`
  // runs inside this call), Unavailable (stopping, or the store failed).
  // `answer` does not call the host, but AddListener.
  void Post(Task task, Answer answer);
  // The same for what a node says, without a limit: a link has one such task at a time.
  void PostOfNode(Task task, Answer answer);
  // Never waits, and is never refused: the latest heartbeat of a process takes the place of the one
  // before that nobody has heard yet. The time of this call counts.
  void PostHeartbeat(const NodeProcess& process, HeartbeatInfo info);

  // `done` runs on the host's thread when the change completes. Call within a task, in the one that
  // started the change.
  void AwaitChange(ChangeId change, ChangeDone done);

  // The options, which never change.
  const CoordinatorOptions& coordinator_options() const { return coordinator_->options(); }

  // OK, or why no task is taken any more.
  absl::Status status() const;
  // `tell` runs once, when that is no longer OK: on the host's thread, in Stop, or in this call. It
  // does not call the host.
  void OnRefusal(std::function<void()> tell);
  // The current plan; never null.
  PlanPtr plan() const;
  // Returns the step from plan `from` to `to`, on the wire: made once for all who ask for the same.
  // The whole of `to` where `from` is 0 or too old.
  std::shared_ptr<const v1::PlanDelta> MessageOf(const PlanPtr& to, PlanVersion from) const;
  // Returns the `from` for a receiver that has the plan `version` from the process `source`.
  PlanVersion BaseOf(std::uint64_t source, PlanVersion version) const {
    return source == source_ ? version : PlanVersion{};
  }

  // For readers on any thread: it may be ahead of plan().
  const StateStore& store() const { return coordinator_->store(); }

  // Sessions whose clients are there.
  SessionWatchers& watchers() { return watchers_; }
  // The cluster key that the coordinator proves itself by.
  const ClusterKey& key() const { return *key_; }

  // When RemoveListener returns, `listener` is not running and will not run again.
  void AddListener(PlanListener* listener);
  void RemoveListener(PlanListener* listener);
  // Tells every listener, also one that is added later, that the coordinator is stopping. Call
  // before RpcServer::Shutdown, which waits for open streams.
  void StopListeners();

 private:
  struct Work {
    Task task;
    Answer answer;
  };
  struct Heartbeat {
    HeartbeatInfo info;
    absl::Time came;
  };
  // Answers to give when a batch is durable.
  struct Outcome {
    Answer answer;  // May be null.
    std::vector<Effect> effects;
  };

  void Run();
  // Until there is something to do; false: stop.
  bool AwaitWork(absl::Time next_tick) ABSL_LOCKS_EXCLUDED(queue_mu_);
  // False: the store is broken, and all callers were told.
  bool RunBatch(absl::Time& next_tick);
  void HearHeartbeats(std::vector<Outcome>& outcomes);
  bool TakeWork(Work& work) ABSL_LOCKS_EXCLUDED(queue_mu_);
  std::vector<Effect> TakeEffects();
  // No task is taken any more; answers the tasks that wait, and the callers that await a change.
  void Refuse(const absl::Status& status);
  void SetPlan(const PlanPtr& plan);
  void SetPlans(const std::vector<Effect>& effects);
  void Carry(const Effect& effect);
  void UpdateMetrics();
  void UpdateJobMetrics(JobCounts counts);

  const CoordinatorHostOptions options_;
  const Clock& clock_;      // Not owned; outlives this object.
  Metrics* const metrics_;  // Not owned; may be null.

  // Owned by the host's thread.
  const std::unique_ptr<Coordinator> coordinator_;
  std::map<ChangeId, ChangeDone> awaited_;
  CoordinatorMetrics counters_;
  std::map<JobState, Gauge> job_counts_;
  Gauge job_units_left_;
  struct MeteredNode {
    std::string name;
    NodeMetrics metrics;
  };
  std::map<NodeId, MeteredNode> node_metrics_;
  ClusterView counted_;  // The state that counters_ show.
  absl::Time looked_;    // When this thread last began a batch.

  mutable Mutex queue_mu_;
  CondVar queue_changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(queue_mu_);
  std::deque<Work> of_nodes_ ABSL_GUARDED_BY(queue_mu_);
  bool nodes_turn_ ABSL_GUARDED_BY(queue_mu_) = true;
  std::map<NodeProcess, Heartbeat> heartbeats_ ABSL_GUARDED_BY(queue_mu_);
  bool stopping_ ABSL_GUARDED_BY(queue_mu_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(queue_mu_);  // Not OK: no task is taken any more.
  std::function<void()> tell_refusal_ ABSL_GUARDED_BY(queue_mu_);  // Null: told, or not requested.

  mutable Mutex plan_mu_;
  PlanPtr plan_ ABSL_GUARDED_BY(plan_mu_);
  std::deque<PlanPtr> recent_ ABSL_GUARDED_BY(plan_mu_);  // The last ones; plan_ at the end.
  // Steps to plan_, by the version they start from.
  mutable std::map<PlanVersion, std::shared_ptr<const v1::PlanDelta>> messages_
      ABSL_GUARDED_BY(plan_mu_);
  const std::uint64_t source_ = RandomId64();

  const std::shared_ptr<const ClusterKey> key_;
  SessionWatchers watchers_;

  Mutex listeners_mu_;
  std::vector<PlanListener*> listeners_ ABSL_GUARDED_BY(listeners_mu_);
  bool listeners_stopped_ ABSL_GUARDED_BY(listeners_mu_) = false;

  std::thread thread_;
};

}  // namespace embla
