// One client's WatchPlan: the current plan, then every newer one; a slow client gets the newest.
// Deletes itself when gRPC is done with it.
#pragma once

#include <memory>

#include <grpcpp/support/server_callback.h>

#include "core/base/mutex.h"
#include "embla/v1/plan.pb.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/open_calls.h"

namespace embla {

// gRPC never runs a reactor's callback inside Start* or Finish, so those are called under mu_.
class WatchPlanCall final : public grpc::ServerWriteReactor<v1::PlanDelta>, private PlanListener {
 public:
  // `base`: as of CoordinatorHost::BaseOf. `session`, if any, is watched until the call ends. An
  // error of `admitted` ends the call. `host` is not owned and outlives the call.
  WatchPlanCall(CoordinatorHost& host, PlanVersion newer_than, PlanVersion base, SessionId session,
                const absl::Status& admitted, OpenCalls::Ticket ticket);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ~WatchPlanCall() override = default;

  void OnPlan(const PlanPtr& plan) override;
  void OnStop() override;
  void WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CoordinatorHost& host_;  // Not owned; outlives this object.
  const SessionId session_;
  const OpenCalls::Ticket ticket_;

  Mutex mu_;
  std::shared_ptr<const v1::PlanDelta> message_ ABSL_GUARDED_BY(mu_);  // Being written.
  PlanPtr plan_ ABSL_GUARDED_BY(mu_);                                  // Newest.
  PlanVersion base_ ABSL_GUARDED_BY(mu_);     // The client's plan; 0: none that is known.
  PlanVersion written_ ABSL_GUARDED_BY(mu_);  // The plan that the client has, or claims to.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status result_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla
