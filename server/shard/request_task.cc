#include "server/shard/request_task.h"

#include "absl/strings/str_cat.h"

namespace embla {

bool RequestTask::Begin() {
  Admission admission = admission_.load(std::memory_order_relaxed);
  if (admission == Admission::kUndecided) {
    const Admission mine =
        node_.options.clock->Now() > deadline_ ? Admission::kExpired : Admission::kBegun;
    if (admission_.compare_exchange_strong(admission, mine, std::memory_order_relaxed)) {
      admission = mine;
    }
  }
  return admission == Admission::kBegun;
}

absl::Status RequestTask::Outcome() const {
  if (admission_.load(std::memory_order_relaxed) != Admission::kBegun) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed while the request was queued on node ",
                     node_.options.name, "; nothing was done"));
  }
  for (const absl::Status& error : errors_) {
    if (!error.ok()) return error;
  }
  return absl::OkStatus();
}

}  // namespace embla
