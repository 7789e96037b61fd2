#include "server/rpc/evictions_call.h"

#include <string>
#include <utility>

#include "core/wire/status_codec.h"

namespace embla {
namespace {

void Fill(const EvictionLog::Piece& piece, v1::EvictedRows& message) {
  message.Clear();
  message.set_missed(piece.missed);
  if (piece.rows == nullptr) return;
  for (const zch::Eviction& eviction : piece.rows->evictions) {
    v1::Eviction& out = *message.add_evictions();
    out.set_id(ToInt(eviction.id));
    out.set_reason(std::string(zch::NameOf(eviction.reason)));
    out.set_step(eviction.step);
    out.set_last_step(eviction.last_step);
  }
  const Buffer& rows = piece.rows->row_block;
  message.set_row_block(rows.data(), rows.size());
}

}  // namespace

class EvictionsCall::Wakeup final : public EvictionLog::Listener {
 public:
  explicit Wakeup(EvictionsCall* call) : call_(call) {}

  void Notify() override {
    MutexLock lock(mu_);
    if (call_ != nullptr) call_->WriteMore();
  }
  // The call ends.
  void Forget() {
    MutexLock lock(mu_);
    call_ = nullptr;
  }

 private:
  Mutex mu_;
  EvictionsCall* call_ ABSL_GUARDED_BY(mu_);  // Not owned.
};

EvictionsCall* EvictionsCall::Start(absl::StatusOr<std::shared_ptr<EvictionLog>> log,
                                    const Query& query, std::shared_ptr<void> slot) {
  auto* const call = new EvictionsCall(log.ok() ? *log : nullptr, query, std::move(slot));
  if (!log.ok()) {
    MutexLock lock(call->mu_);
    call->FinishLocked(log.status());
    return call;
  }
  if (query.follow) {
    call->wakeup_ = std::make_shared<Wakeup>(call);
    (*log)->Subscribe(call->wakeup_);
  }
  call->WriteMore();
  return call;
}

EvictionsCall::EvictionsCall(std::shared_ptr<EvictionLog> log, const Query& query,
                             std::shared_ptr<void> slot)
    : log_(std::move(log)),
      follow_(query.follow),
      slot_(std::move(slot)),
      position_(log_ != nullptr && log_->id() == query.log ? query.from : 0) {}

void EvictionsCall::WriteMore() {
  MutexLock lock(mu_);
  WriteMoreLocked();
}

void EvictionsCall::WriteMoreLocked() {
  if (writing_ || finished_) return;
  const EvictionLog::Piece piece = log_->Read(position_);
  position_ = piece.next;
  if (piece.rows != nullptr || piece.missed > 0) {
    Fill(piece, message_);
    message_.set_log(log_->id());
    message_.set_next(piece.next);
    writing_ = true;
    StartWrite(&message_);
  } else if (piece.closed) {
    FinishLocked(absl::NotFoundError("nothing of the table is on this node any more"));
  } else if (!follow_) {
    FinishLocked(absl::OkStatus());
  }
}

void EvictionsCall::FinishLocked(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  Finish(wire::ToGrpc(status));
}

void EvictionsCall::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (ok) {
    WriteMoreLocked();
  } else {
    FinishLocked(absl::CancelledError("the reader is gone"));
  }
}

void EvictionsCall::OnCancel() {
  MutexLock lock(mu_);
  if (!writing_) FinishLocked(absl::CancelledError("the reader is gone"));
}

void EvictionsCall::OnDone() {
  if (wakeup_ != nullptr) {
    log_->Unsubscribe(wakeup_.get());
    wakeup_->Forget();
  }
  delete this;
}

}  // namespace embla
