#include "client/call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/route/error_details.h"
#include "core/base/retry_hint.h"
#include "core/base/short_wait.h"
#include "core/base/text.h"
#include "core/rows/stale_plan.h"

namespace embla::client {
namespace {

// An error of the node's own making is not worth many tries.
constexpr int kInternalAttemptsMax = 3;
// How long to look for a reply that gRPC receives: a small request takes about so long.
constexpr std::chrono::microseconds kLooksMax{160};

// Errors after which a node may have done what it was asked; after others of a call with several
// nodes, those that answered have.
bool IsOutcomeUnknown(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
      return false;
    default:
      return true;
  }
}

PlanVersion Next(PlanVersion version) { return PlanVersion{ToInt(version) + 1}; }

}  // namespace

Call::Call(CallServices& services, std::unique_ptr<CallWork> work, absl::Time deadline,
           MethodMetrics& metrics, const TraceContext& caller)
    : services_(services),
      work_(std::move(work)),
      deadline_(deadline),
      begin_(services.timer.Now()),
      metrics_(metrics),
      span_(caller.is_set()
                ? std::make_unique<const Span>(Span::Under(caller, metrics.method(), begin_))
                : nullptr) {
  services_.budget.AddRequest();
}

absl::Status Call::Run() {
  Start(/*may_refresh=*/true);
  while (!over_) NextStep()();
  return status_;
}

std::function<void()> Call::NextStep() {
  while (true) {
    const bool receives = wait_.receives();
    {
      MutexLock lock(mu_);
      receiving_ = receives && steps_.empty();
      if (!steps_.empty()) {
        std::function<void()> step = std::move(steps_.front());
        steps_.erase(steps_.begin());
        return step;
      }
    }
    if (receives) {
      wait_.Wait();
    } else {
      AwaitStep();
    }
  }
}

// Others receive the replies.
void Call::AwaitStep() {
  thread_local ShortWait wait(kLooksMax);
  wait.Until([this](bool sleeps) {
    MutexLock lock(mu_);
    while (sleeps && steps_.empty()) changed_.Wait(mu_);
    return !steps_.empty();
  });
}

void Call::RunAsync(std::function<void(const absl::Status&)> done) {
  done_ = std::move(done);
  const bool is_full = services_.executor.IsFull();
  Post([this, is_full] {
    if (!is_full) return Start(/*may_refresh=*/true);
    status_ = absl::ResourceExhaustedError(
        "too many calls and callbacks wait for the client's threads; let some end first");
    FinishCall();
  });
}

void Call::Post(std::function<void()> step) {
  {
    MutexLock lock(mu_);
    steps_.push_back(std::move(step));
    // Once the lock is released, a caller in Run or a thread in Drain may end the call: only who is
    // about to drain may touch it.
    if (done_ == nullptr) return receiving_ ? wait_.Wake() : changed_.NotifyOne();
    if (draining_) return;
    draining_ = true;
  }
  services_.executor.Post([this] { Drain(); });
}

void Call::Drain() {
  while (true) {
    std::function<void()> step;
    {
      MutexLock lock(mu_);
      if (steps_.empty()) {
        draining_ = false;
        return;
      }
      step = std::move(steps_.front());
      steps_.erase(steps_.begin());
    }
    step();
    if (!over_) continue;
    // With no request in flight, no other thread has a pointer to this object.
    const auto done = std::move(done_);
    const absl::Status status = status_;
    return done(status);
  }
}

void Call::Start(bool may_refresh) {
  const RoutesPtr routes = services_.plans.routes();
  const absl::Status status = work_->Prepare(*routes);
  if (absl::IsNotFound(status) && may_refresh) {
    // The table may be newer than the plan.
    return services_.plans.RefreshThen(deadline_,
                                       [this] { Post([this] { Start(/*may_refresh=*/false); }); });
  }
  if (!status.ok()) {
    status_ = status;
    return FinishCall();
  }
  work_->Enter(deadline_, [this](const absl::Status& admitted) {
    Post([this, admitted] { OnAdmitted(admitted); });
  });
}

void Call::OnAdmitted(const absl::Status& status) {
  status_ = status;
  if (!status_.ok()) return FinishCall();
  const RoutesPtr routes = services_.plans.routes();
  const NodeId avoid = services_.nodes.NodeToAvoid(services_.timer.Now());
  absl::StatusOr<std::vector<ShareTarget>> targets = work_->Split(*routes, avoid);
  if (!targets.ok()) status_ = targets.status();
  if (!targets.ok() || targets->empty()) return FinishCall();
  unfinished_ = targets->size();
  for (const ShareTarget& target : *targets) Send({.target = target});
}

void Call::Send(const Attempt& attempt) {
  const std::shared_ptr<NodeChannel> channel = services_.nodes.Find(attempt.target.node);
  if (channel == nullptr) {
    return OnFailure(attempt, absl::UnavailableError("the node is in no plan any more"));
  }
  was_sent_ = true;
  Attempt sent = attempt;
  if (span_ != nullptr) {
    ++messages_;
    sent.message = std::make_shared<const Span>(
        Span::Under(span_->context, span_->method, services_.timer.Now()));
  }
  const TraceContext trace = sent.message == nullptr ? TraceContext() : sent.message->context;
  // The reply keeps the channel, whatever the next plan says.
  const SocketPtr socket =
      work_->Send(attempt.target, *channel, deadline_, trace,
                  [this, sent = std::move(sent), channel](NodeReply reply) {
                    Post([this, sent, reply = std::move(reply)] { OnReply(sent, reply); });
                  });
  if (done_ == nullptr) wait_.Add(socket);
}

void Call::OnReply(const Attempt& attempt, const NodeReply& reply) {
  if (attempt.message != nullptr) EndMessage(attempt, reply);
  sent_bytes_ += reply.sent_bytes;
  received_bytes_ += reply.received_bytes;
  if (!reply.status.ok()) return OnFailure(attempt, reply.status);
  const std::vector<UnitHint> hints =
      work_->HintsIn(attempt.target, reply, *services_.plans.routes());
  services_.plans.Follow(attempt.target.plan_version, attempt.target.node, reply.plan_version,
                         hints);
  const std::vector<Postponed> left =
      work_->TakePostponed(attempt.target, reply, *services_.plans.routes());
  // An update's share was applied but for what is left, a lookup's was answered whole or not at
  // all.
  if (work_->changes_rows() || left.empty()) answered_.push_back(attempt.target);
  for (const Postponed& postponed : left) {
    ++unfinished_;
    OnPostponed(attempt, postponed);
  }
  FinishShare(absl::OkStatus());
}

// A part of a share whose unit is on the move. The node is well, so this is no attempt that failed
// and takes nothing from the budget: only the deadline ends it.
void Call::OnPostponed(const Attempt& attempt, const Postponed& postponed) {
  if (!status_.ok()) return FinishShare(status_);
  Attempt next = attempt;
  next.target = postponed.target;
  --next.attempts;
  if (postponed.moved) {
    return RefreshAndResend(next, postponed.reason,
                            std::max(postponed.plan_version, Next(next.target.plan_version)));
  }
  if (postponed.wait == absl::ZeroDuration()) return Resend(next, kNoNode);
  if (services_.timer.Now() + postponed.wait >= deadline_) {
    return FinishShare(Explain(next, postponed.reason));
  }
  ResendAfter(postponed.wait, next);
}

absl::Status Call::CheckOpen() const {
  // Pairs with ClientImpl::Close's release.
  if (!services_.cut_off.load(std::memory_order_acquire)) return absl::OkStatus();
  return absl::CancelledError("the client was closed");
}

void Call::OnFailure(const Attempt& attempt, const absl::Status& status) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return FinishShare(Explain(attempt, open));
  const Remedy remedy = RemedyFor(status);
  const absl::Time now = services_.timer.Now();
  const bool hopeless = absl::IsInternal(status) && attempt.attempts >= kInternalAttemptsMax;
  // One error is enough: the other shares need not be tried again.
  if (remedy == Remedy::kGiveUp || hopeless || !status_.ok()) {
    return FinishShare(Explain(attempt, status));
  }
  const bool is_contribution = work_->IsContribution(attempt.target);
  if (is_contribution && absl::IsFailedPrecondition(status) && !AsksForNewerPlan(status)) {
    return ResendUnderNewerPlan(attempt, status);
  }
  if (remedy == Remedy::kRefreshPlan) {
    return RefreshAndResend(attempt, status, Next(attempt.target.plan_version));
  }
  if (absl::IsUnavailable(status)) {
    services_.nodes.NoteFailure(attempt.target.node, now);
    // Another copy is asked at once, and once for nothing: that is no attempt more at this node.
    const RoutesPtr routes = services_.plans.routes();
    if (attempt.attempts == 1 && work_->HasOtherCopy(attempt.target, *routes)) {
      return Resend(attempt, attempt.target.node);
    }
  }
  const absl::Duration hint = RetryAfterOf(status);
  absl::Duration wait = services_.backoff.Next(remedy, attempt.attempts, hint);
  if (now + wait >= deadline_) return FinishShare(Explain(attempt, status));
  // The waits between the attempts have to be enough for a contribution, which other clients wait
  // for, and for who comes again when it was asked to.
  const bool is_free = is_contribution || hint > absl::ZeroDuration();
  if (!is_free) {
    const std::optional<absl::Duration> token = services_.budget.Take(now, deadline_ - now);
    if (!token.has_value()) {
      services_.metrics.retry_budget_exhausted.Add();
      return FinishShare(
          Annotate(Explain(attempt, status),
                   "the retry budget has nothing left before the call's deadline: give it more "
                   "time, or raise retry_budget_ratio"));
    }
    wait = std::max(wait, *token);
  }
  metrics_.RecordRetry();
  ResendAfter(wait, attempt);
}

// Asks for a plan of version `wanted`; without one the node may be the one that is behind. Where
// hints lead on there is nothing to wait for. Where they lead to the node that has refused, it will
// have the units in a moment, and a coordinator that does not answer holds nothing up.
void Call::RefreshAndResend(const Attempt& attempt, const absl::Status& status,
                            PlanVersion wanted) {
  const RoutesPtr routes = services_.plans.routes();
  if (routes->plan().version() >= wanted) return Resend(attempt, kNoNode);
  Attempt next = attempt;
  const bool has_hints = routes->hints() > 0;
  if (has_hints) {
    const auto targets = work_->Retarget(attempt.target, *routes, kNoNode);
    if (!targets.ok()) return FinishShare(Explain(attempt, targets.status()));
    if (targets->size() != 1 || targets->front().node != attempt.target.node) {
      return ResendTo(*targets, attempt);
    }
    next.target = targets->front();
  }
  ++next.refreshes;
  const absl::Duration wait = services_.backoff.Next(Remedy::kRefreshPlan, next.refreshes);
  if (services_.timer.Now() + wait >= deadline_) {
    const absl::Status stale = absl::UnavailableError(
        absl::StrCat("the node refuses plan ", ToInt(attempt.target.plan_version),
                     " and there is no newer one: ", status.message()));
    return FinishShare(Explain(attempt, stale));
  }
  if (has_hints) {
    services_.plans.RefreshThen(deadline_, [] {});
    return ResendAfter(wait, next);
  }
  services_.plans.RefreshThen(deadline_, [this, next, wait, wanted] {
    Post([this, next, wait, wanted] {
      const bool newer = services_.plans.routes()->plan().version() >= wanted;
      newer ? Resend(next, kNoNode) : ResendAfter(wait, next);
    });
  });
}

// A contribution that a node refuses for its step is not sent again, unless the node may have
// followed a newer plan than the sender.
void Call::ResendUnderNewerPlan(const Attempt& attempt, const absl::Status& status) {
  const auto decide = [this, attempt, status](bool may_refresh) {
    const bool newer = services_.plans.routes()->plan().version() > attempt.target.plan_version;
    if (newer) Resend(attempt, kNoNode);
    if (!newer && !may_refresh) FinishShare(Explain(attempt, status));
    return newer;
  };
  if (decide(/*may_refresh=*/true)) return;
  services_.plans.RefreshThen(
      deadline_, [this, decide] { Post([decide] { decide(/*may_refresh=*/false); }); });
}

void Call::ResendAfter(absl::Duration wait, const Attempt& attempt) {
  services_.timer.At(services_.timer.Now() + wait, [this, attempt] {
    Post([this, attempt] { Resend(attempt, attempt.target.node); });
  });
}

void Call::Resend(const Attempt& attempt, NodeId avoid) {
  if (!status_.ok()) return FinishShare(status_);
  if (const absl::Status open = CheckOpen(); !open.ok()) return FinishShare(Explain(attempt, open));
  absl::StatusOr<std::vector<ShareTarget>> targets =
      work_->Retarget(attempt.target, *services_.plans.routes(), avoid);
  if (!targets.ok()) return FinishShare(Explain(attempt, targets.status()));
  ResendTo(*targets, attempt);
}

void Call::ResendTo(const std::vector<ShareTarget>& targets, const Attempt& attempt) {
  unfinished_ += targets.size() - 1;
  for (const ShareTarget& target : targets) {
    Send({.target = target, .attempts = attempt.attempts + 1, .refreshes = attempt.refreshes});
  }
}

void Call::FinishShare(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  --unfinished_;
  if (unfinished_ == 0) FinishCall();
}

absl::Status Call::Explain(const Attempt& attempt, const absl::Status& status) const {
  const RoutesPtr routes = services_.plans.routes();
  const NodeSpec* node = routes->plan().FindNode(attempt.target.node);
  const TableRoute* table = routes->Find(work_->TableOf(attempt.target));
  std::string where = node == nullptr ? absl::StrCat("node id ", ToInt(attempt.target.node))
                                      : absl::StrCat("node ", node->name, " at ", node->address);
  if (table != nullptr) absl::StrAppend(&where, ", table ", table->spec().name);
  if (attempt.attempts > 1) absl::StrAppend(&where, ", after ", attempt.attempts, " attempts");
  absl::Status explained = Annotate(status, where);
  if (node != nullptr) explained = AboutNode(std::move(explained), node->name);
  if (table != nullptr) explained = AboutTable(std::move(explained), table->spec().name);
  return explained;
}

void Call::FinishCall() {
  wait_.Release();
  if (status_.ok()) work_->Merge(answered_);
  if (was_sent_ && work_->changes_rows() && IsOutcomeUnknown(status_.code())) {
    status_ = OutcomeUnknown(std::move(status_));
  }
  work_->Leave();
  const absl::Time now = services_.timer.Now();
  metrics_.Record(status_.code(), now - begin_, sent_bytes_, received_bytes_);
  if (span_ != nullptr) EndTrace(now);
  over_ = true;
}

void Call::EndMessage(const Attempt& attempt, const NodeReply& reply) const {
  const RoutesPtr routes = services_.plans.routes();
  const NodeSpec* const node = routes->plan().FindNode(attempt.target.node);
  WriteSpan(
      "traced message", *attempt.message, services_.timer.Now(), reply.status,
      absl::StrCat(" node=", node == nullptr ? "" : node->name, " attempt=", attempt.attempts));
}

void Call::EndTrace(absl::Time now) {
  WriteSpan("traced call", *span_, now, status_, absl::StrCat(" messages=", messages_));
  status_ = Annotate(status_, "trace " + span_->context.TraceId());
}

void Call::WriteSpan(std::string_view what, const Span& span, absl::Time end,
                     const absl::Status& status, const std::string& more) const {
  if (!span.context.sampled) return;
  if (services_.spans.Write(what, span, end, status, more)) return;
  services_.metrics.trace_lines_dropped.Add();
}

}  // namespace embla::client
