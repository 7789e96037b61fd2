#include "server/rpc/watch_plan_call.h"

#include <utility>

#include "core/wire/status_codec.h"

namespace embla {

WatchPlanCall::WatchPlanCall(CoordinatorHost& host, PlanVersion newer_than, PlanVersion base,
                             SessionId session, const absl::Status& admitted,
                             OpenCalls::Ticket ticket)
    : host_(host),
      session_(session),
      ticket_(std::move(ticket)),
      base_(base),
      written_(newer_than) {
  {
    MutexLock lock(mu_);
    ended_ = !admitted.ok();
    result_ = wire::ToGrpc(admitted);
  }
  host_.AddListener(this);
  OnPlan(host_.plan());  // After adding: no plan falls between.
}

void WatchPlanCall::OnPlan(const PlanPtr& plan) {
  MutexLock lock(mu_);
  if (plan_ == nullptr || plan->version() > plan_->version()) plan_ = plan;
  WriteOrFinish();
}

void WatchPlanCall::OnStop() {
  MutexLock lock(mu_);
  if (ended_) return;
  ended_ = true;
  result_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator is stopping");
  WriteOrFinish();
}

void WatchPlanCall::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (!ok) ended_ = true;
  WriteOrFinish();
}

void WatchPlanCall::OnCancel() {
  MutexLock lock(mu_);
  ended_ = true;
  WriteOrFinish();
}

void WatchPlanCall::OnDone() {
  host_.RemoveListener(this);
  if (session_ != SessionId{}) host_.watchers().Hear(session_, -1);
  delete this;
}

void WatchPlanCall::WriteOrFinish() {
  if (writing_ || finished_) return;
  if (ended_) {
    finished_ = true;
    Finish(result_);
  } else if (plan_->version() > written_) {
    message_ = host_.MessageOf(plan_, base_);
    base_ = plan_->version();
    written_ = plan_->version();
    writing_ = true;
    StartWrite(message_.get());
  }
}

}  // namespace embla
