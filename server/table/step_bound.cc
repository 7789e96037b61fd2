#include "server/table/step_bound.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace embla {

absl::Status StepBound::Check(std::uint64_t step, absl::Time now) const {
  if (step > kStepMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " is more than ", kStepMax, ", the highest there is"));
  }
  if (highest_ == 0 || step <= highest_) return absl::OkStatus();
  const std::int64_t seconds =
      std::clamp<std::int64_t>(absl::ToInt64Seconds(now - raised_at_), 0, std::int64_t{1} << 32);
  const std::uint64_t ahead = kAheadMax + kPerSecond * static_cast<std::uint64_t>(seconds);
  if (step - highest_ <= ahead) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("step ", step, " is more than ", ahead, " beyond ",
                                                 highest_,
                                                 ", the highest of the table on this node so far"));
}

void StepBound::Note(std::uint64_t step, absl::Time now) {
  if (step <= highest_) return;
  highest_ = step;
  raised_at_ = now;
}

}  // namespace embla
