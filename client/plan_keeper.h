// The client's current plan: watched, refreshed on demand, never going back; and the hints about
// units that have moved since, which go with the plan that they came under.
#pragma once

#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/node_directory.h"
#include "client/route/table_route.h"
#include "client/transport/coordinator_channel.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class PlanKeeper {
 public:
  // All outlive this object; none is owned.
  PlanKeeper(CoordinatorChannel& coordinator, NodeDirectory& nodes, const Timer& timer,
             ClientMetrics metrics);
  ~PlanKeeper();

  // Version 0 before the first plan.
  RoutesPtr routes() const;

  // Takes over `plan` if it is newer.
  void Offer(PlanPtr plan);
  // Takes over what `node`, which goes by `its_plan`, says about units in its answer to a request
  // that plan `routed_by` and perhaps hints brought there; unless there is a newer plan by now.
  void Follow(PlanVersion routed_by, NodeId node, PlanVersion its_plan,
              std::span<const UnitHint> hints);
  // Asks the coordinator for its plan. Errors are the coordinator's.
  absl::Status Refresh(absl::Time deadline);
  // Calls `then` once the coordinator was asked after this call, whatever it answered, or about
  // when `deadline` has passed; on a thread of the keeper. It must not block.
  void RefreshThen(absl::Time deadline, std::function<void()> then);

 private:
  struct Waiting {
    absl::Time deadline;
    std::function<void()> then;
  };

  void RefreshLoop();

  CoordinatorChannel& coordinator_;
  NodeDirectory& nodes_;
  const Timer& timer_;
  const ClientMetrics metrics_;

  Mutex hints_mu_;  // One change by hints at a time. Locked before mu_.
  mutable Mutex mu_;
  CondVar changed_;
  RoutesPtr routes_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread refresher_;  // Last: it uses the others.
};

}  // namespace embla::client
