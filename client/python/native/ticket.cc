#include "client/python/native/ticket.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "client/python/native/waiting.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

// Keeps a value that threads may still use, which are not joined or, after a fork, do not exist: a
// lock that one of them holds is never released.
template <typename Value>
void Leak(Value value) {
  new Value(std::move(value));
}

}  // namespace

ParkedArrays::~ParkedArrays() {
  Sweep();
  if (!entries_.empty()) Leak(std::move(entries_));
}

void ParkedArrays::Park(std::shared_ptr<Completion> completion, KeptArrays arrays) {
  if (!arrays.empty()) entries_.push_back({std::move(completion), std::move(arrays)});
}

void ParkedArrays::Sweep() {
  if (entries_.empty()) return;
  std::vector<Entry> over;  // Their destructors run Python code, which may come here again.
  const auto rest = std::stable_partition(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return !entry.completion->done();
  });
  std::move(rest, entries_.end(), std::back_inserter(over));
  entries_.erase(rest, entries_.end());
}

Ticket::Ticket(CallKind kind, std::shared_ptr<Completion> completion, KeptArrays kept,
               nb::object result, std::shared_ptr<ParkedArrays> parked)
    : kind_(kind),
      completion_(std::move(completion)),
      kept_(std::move(kept)),
      result_(std::move(result)),
      parked_(std::move(parked)) {}

Ticket::~Ticket() {
  if (fork_guard_.forked()) {
    Leak(completion_);
    return;
  }
  if (completion_->done()) return;
  if (cancelled_ || interrupted_ || !parked_->waits()) {
    parked_->Park(completion_, std::move(kept_));
    return;
  }
  const nb::gil_scoped_release no_gil;
  completion_->WaitFor(absl::InfiniteDuration());
}

nb::object Ticket::Wait(std::optional<double> timeout_seconds) {
  if (fork_guard_.forked()) {
    RaiseNamed("ForkedClientError", "the call was started before this process was forked");
  }
  if (cancelled_) RaiseNamed("CancelledError", "the call was cancelled");
  const auto timeout =
      timeout_seconds ? std::optional(absl::Seconds(*timeout_seconds)) : std::nullopt;
  bool over = false;
  try {
    over = WaitInterruptibly(*completion_, timeout);
  } catch (const nb::python_error&) {
    interrupted_ = true;
    throw;
  }
  if (!over) {
    Raise(absl::DeadlineExceededError("the call is not over yet; it goes on"), kind_);
  }
  // An array's destructor may let another thread run, which may wait for this ticket, too.
  KeptArrays kept;
  kept.swap(kept_);
  kept.clear();
  Check(completion_->status(), kind_);
  return result_;
}

bool Ticket::Cancel() {
  if (cancelled_) return true;
  if (kind_ == CallKind::kWrite || fork_guard_.forked() || completion_->done()) return false;
  cancelled_ = true;
  return true;
}

int Ticket::ReadableDescriptor() {
  const absl::StatusOr<int> descriptor = completion_->ReadableDescriptor();
  Check(descriptor.status());
  return *descriptor;
}

}  // namespace embla::python
