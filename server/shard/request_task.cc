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

bool RequestTask::Agree(std::uint32_t device, const absl::Status& status) {
  SetError(device, status);
  if (devices_.size() == 1) return status.ok();
  std::int32_t worst = 0;
  const absl::Status met =
      this->device(device).communicator->AllReduceMax(status.ok() ? 0 : 1, worst);
  if (!met.ok()) SetError(device, met);
  return met.ok() && worst == 0;
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
