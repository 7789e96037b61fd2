#include "tests/fault/proxied_call.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace embla::fault {
namespace {

constexpr std::string_view kStreams[] = {"/Stream", "/NodeLink", "/WatchPlan", "/ReadRows"};
constexpr std::string_view kNodeLink = "/embla.v1.CoordinatorService/NodeLink";
// NodeReport.moves and NodeCommand.moves: field 3, a message. Nothing else comes with it.
constexpr std::uint8_t kMovesTag = 3 << 3 | 2;

const grpc::Status& Reset() {
  static const auto* const status =
      new grpc::Status(grpc::StatusCode::UNAVAILABLE, "injected: connection reset");
  return *status;
}

bool IsStream(std::string_view method) {
  for (const std::string_view stream : kStreams) {
    if (method.ends_with(stream)) return true;
  }
  return false;
}

}  // namespace

ProxiedCall::ProxiedCall(FaultProxy& proxy, std::uint64_t id,
                         grpc::GenericCallbackServerContext* call)
    : proxy_(proxy), id_(id), method_(call->method()), down_(*this), up_(*this) {
  context_.set_deadline(call->deadline());
}

bool ProxiedCall::is_unary() const { return !IsStream(method_); }

grpc::ServerGenericBidiReactor* ProxiedCall::Begin() {
  stub_ = proxy_.upstream();
  down_.self = shared_from_this();
  const MutexLock lock(mu_);
  if (stub_ == nullptr) FinishLocked(Reset());
  if (is_finished_) return &down_;  // Broken before it began.
  up_.self = shared_from_this();
  stub_->PrepareBidiStreamingCall(&context_, method_, grpc::StubOptions(), &up_);
  upstream_reads_ = true;
  up_.StartRead(&reply_);
  up_.StartCall();
  down_.StartRead(&request_);
  return &down_;
}

std::string ProxiedCall::Describe() {
  const MutexLock lock(mu_);
  const auto pipe = [](const Pipe& p) {
    return absl::StrCat(p.passed, " passed, ", p.queue.size(), " wait",
                        p.is_writing ? ", one is being written" : "",
                        p.is_closed ? ", closed" : "");
  };
  return absl::StrCat(method_, ": requests ", pipe(requests_), "; replies ", pipe(replies_),
                      upstream_reads_ ? "" : "; upstream is gone", is_finished_ ? "; finished" : "",
                      drop_reply_ ? "; breaks at the next reply" : "");
}

void ProxiedCall::Break() {
  const MutexLock lock(mu_);
  BreakLocked();
}

void ProxiedCall::BreakLocked() {
  context_.TryCancel();
  FinishLocked(Reset());
}

void ProxiedCall::FinishLocked(const grpc::Status& status) {
  if (is_finished_) return;
  is_finished_ = true;
  down_.Finish(status);
}

// The caller's message is here: what becomes of it?
void ProxiedCall::OnRequest(bool ok) {
  const MutexLock lock(mu_);
  if (is_finished_) return;
  if (!ok) {
    requests_.is_closed = true;
    return PumpRequests();
  }
  const Fate fate = proxy_.DrawFate(method_);
  if (is_unary()) {
    if (proxy_.witness_) proxy_.witness_(method_, request_);
    if (fate.drop_request) return BreakLocked();
    drop_reply_ = fate.drop_reply;
    if (fate.duplicate) {
      proxy_.timer_.At(proxy_.timer_.Now() + 2 * fate.delay,
                       [call = shared_from_this(), copy = request_] {
                         call->proxy_.Replay(call->method_, copy);
                       });
    }
  } else if (!IsAboutUnits(request_)) {
    if (fate.drop_request) return BreakLocked();
    // The message is delivered, and the stream breaks before the reply.
    drop_reply_ = drop_reply_ || fate.drop_reply;
  }
  Admit(requests_, request_, fate);
  request_.Clear();
  PumpRequests();
  down_.StartRead(&request_);
}

void ProxiedCall::OnReply(bool ok) {
  const MutexLock lock(mu_);
  if (!ok) {
    upstream_reads_ = false;
    return;
  }
  const bool about_units = IsAboutUnits(reply_);
  if (drop_reply_ && !about_units) {
    BreakLocked();
  } else if (!is_finished_) {
    Admit(replies_, reply_, proxy_.DrawFate(method_));
    PumpReplies();
  }
  reply_.Clear();
  up_.StartRead(&reply_);
}

void ProxiedCall::OnUpstreamDone(const grpc::Status& status) {
  const MutexLock lock(mu_);
  upstream_reads_ = false;
  status_ = drop_reply_ ? Reset() : status;
  replies_.is_closed = true;
  PumpReplies();
}

bool ProxiedCall::IsAboutUnits(const grpc::ByteBuffer& message) const {
  if (method_ != kNodeLink) return false;
  std::vector<grpc::Slice> slices;
  return message.Dump(&slices).ok() && !slices.empty() && slices.front().size() > 0 &&
         slices.front().begin()[0] == kMovesTag;
}

void ProxiedCall::Admit(Pipe& pipe, const grpc::ByteBuffer& bytes, const Fate& fate) {
  const bool about_units = IsAboutUnits(bytes);
  if (about_units && (fate.drop_request || fate.drop_reply)) return;
  pipe.last_ready = std::max(pipe.last_ready, proxy_.timer_.Now() + fate.delay);
  pipe.queue.push_back({bytes, pipe.last_ready});
  if (!about_units) return;
  if (fate.duplicate) pipe.queue.push_back(pipe.queue.back());
  // Overtakes the one before, if that waits.
  const std::size_t size = pipe.queue.size();
  if (fate.delay > absl::ZeroDuration() && size > 1 && IsAboutUnits(pipe.queue[size - 2].bytes)) {
    std::swap(pipe.queue[size - 1].bytes, pipe.queue[size - 2].bytes);
  }
}

bool ProxiedCall::MayPass(const Pipe& pipe) {
  const auto again = [call = shared_from_this()] {
    const MutexLock lock(call->mu_);
    call->PumpRequests();
    call->PumpReplies();
  };
  const FaultProxy::Way way =
      &pipe == &requests_ ? FaultProxy::Way::kRequests : FaultProxy::Way::kReplies;
  if (proxy_.IsCut(way, method_)) {
    proxy_.OnceHealed(way, method_, again);
    return false;
  }
  if (pipe.queue.empty() || pipe.queue.front().ready <= proxy_.timer_.Now()) return true;
  proxy_.timer_.At(pipe.queue.front().ready, again);
  return false;
}

void ProxiedCall::PumpRequests() {
  if (requests_.is_writing || !upstream_reads_ || is_finished_) return;
  if (requests_.queue.empty() && !requests_.is_closed) return;
  if (!MayPass(requests_)) return;
  if (!requests_.queue.empty()) {
    requests_.in_flight = requests_.queue.front().bytes;
    requests_.queue.pop_front();
    requests_.is_writing = true;
    ++requests_.passed;
    up_.StartWrite(&requests_.in_flight);
  } else if (!std::exchange(requests_.is_ended, true)) {
    up_.StartWritesDone();
  }
}

void ProxiedCall::OnRequestWritten() {
  const MutexLock lock(mu_);
  requests_.is_writing = false;
  PumpRequests();
}

void ProxiedCall::PumpReplies() {
  if (replies_.is_writing || is_finished_) return;
  if (replies_.queue.empty() && !replies_.is_closed) return;
  if (!MayPass(replies_)) return;
  if (!replies_.queue.empty()) {
    replies_.in_flight = replies_.queue.front().bytes;
    replies_.queue.pop_front();
    replies_.is_writing = true;
    ++replies_.passed;
    down_.StartWrite(&replies_.in_flight);
  } else {
    FinishLocked(*status_);
  }
}

void ProxiedCall::OnReplyWritten() {
  const MutexLock lock(mu_);
  replies_.is_writing = false;
  PumpReplies();
}

// The last of the two takes the call along, once its lock is released.
void ProxiedCall::Downstream::OnDone() {
  const std::shared_ptr<ProxiedCall> last = std::move(self);
  last->context_.TryCancel();
  last->proxy_.Forget(last->id_);
}

void ProxiedCall::Upstream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<ProxiedCall> last = std::move(self);
  last->OnUpstreamDone(status);
}

}  // namespace embla::fault
