// One lookup or update on its way: asks every node for its share, sends again what failed and may
// be repeated, and ends when nothing is in flight any more: with everything answered, or with the
// first error that cannot be helped.
//
// The steps of a call run one after the other on a queue of its own: for a waiting caller on the
// caller's thread, else on the executor. Replies, timers and plan refreshes only add to that queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/call_work.h"
#include "client/executor.h"
#include "client/node_directory.h"
#include "client/plan_keeper.h"
#include "client/retry.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"
#include "core/base/span_log.h"
#include "core/metrics/instruments.h"
#include "core/socket/receiving_wait.h"

namespace embla::client {

// The services that all calls of a client share. They are not owned, and outlive the calls.
struct CallServices {
  Timer& timer;
  Executor& executor;
  PlanKeeper& plans;
  NodeDirectory& nodes;
  RetryBudget& budget;
  Backoff& backoff;
  const ClientMetrics& metrics;
  const std::atomic<bool>& cut_off;  // The client closes, and what runs is to end now.
  SpanLog& spans;
};

class Call {
 public:
  // `metrics` is not owned; outlives the call. `caller` is the span that the call belongs to; not
  // set: it is not traced.
  Call(CallServices& services, std::unique_ptr<CallWork> work, absl::Time deadline,
       MethodMetrics& metrics, const TraceContext& caller);

  // Runs the call on this thread.
  absl::Status Run();
  // Runs the call on the executor; `done` is the last that it does, and may destroy this object.
  void RunAsync(std::function<void(const absl::Status&)> done);

 private:
  // A share that is in flight or waits for its turn.
  struct Attempt {
    ShareTarget target;
    int attempts = 1;
    int refreshes = 0;
    std::shared_ptr<const Span> message = nullptr;  // Null: not traced, or not sent.
  };

  void Post(std::function<void()> step);
  // Waits for the next step; the caller's in Run.
  std::function<void()> NextStep();
  void AwaitStep();
  void Drain();

  void Start(bool may_refresh);
  void OnAdmitted(const absl::Status& status);
  void Send(const Attempt& attempt);
  void OnReply(const Attempt& attempt, const NodeReply& reply);
  void OnFailure(const Attempt& attempt, const absl::Status& status);
  void OnPostponed(const Attempt& attempt, const Postponed& postponed);
  void RefreshAndResend(const Attempt& attempt, const absl::Status& status, PlanVersion wanted);
  void ResendUnderNewerPlan(const Attempt& attempt, const absl::Status& status);
  void Resend(const Attempt& attempt, NodeId avoid);
  void ResendTo(const std::vector<ShareTarget>& targets, const Attempt& attempt);
  void ResendAfter(absl::Duration wait, const Attempt& attempt);
  // The end of a share. The first error is the call's.
  void FinishShare(const absl::Status& status);
  absl::Status Explain(const Attempt& attempt, const absl::Status& status) const;
  // Cancelled once the client is closed.
  absl::Status CheckOpen() const;
  void FinishCall();
  void EndMessage(const Attempt& attempt, const NodeReply& reply) const;
  // The call is over: `status_` names its trace from here on.
  void EndTrace(absl::Time now);
  void WriteSpan(std::string_view what, const Span& span, absl::Time end,
                 const absl::Status& status, const std::string& more) const;

  CallServices& services_;
  const std::unique_ptr<CallWork> work_;
  const absl::Time deadline_;
  const absl::Time begin_;
  MethodMetrics& metrics_;
  const std::unique_ptr<const Span> span_;  // Null: not traced.

  // Shares with steps still to do.
  std::size_t unfinished_ = 0;  // Shares.
  std::vector<ShareTarget> answered_;
  absl::Status status_;
  std::size_t sent_bytes_ = 0;
  std::size_t received_bytes_ = 0;
  bool was_sent_ = false;
  std::size_t messages_ = 0;  // Counted if it is traced.
  bool over_ = false;
  std::function<void(const absl::Status&)> done_;  // Null: a caller waits in Run,
  ReceivingWait wait_;                             // and receives its replies itself.

  Mutex mu_;
  CondVar changed_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool receiving_ ABSL_GUARDED_BY(mu_) = false;  // The caller is in wait_.
  absl::InlinedVector<std::function<void()>, 2> steps_ ABSL_GUARDED_BY(mu_);  // The oldest first.
};

}  // namespace embla::client
