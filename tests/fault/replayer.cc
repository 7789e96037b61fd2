#include "tests/fault/replayer.h"

#include <string_view>
#include <utility>

namespace embla::fault {
namespace {

constexpr std::string_view kUpdate = "/embla.v1.DataService/Update";

}  // namespace

void Replayer::Witness(OldRequest request) {
  if (request.method != kUpdate) return;
  const MutexLock lock(mu_);
  newest_.push_back(request);
  if (newest_.size() > kNewestMax) newest_.pop_front();
  // Each of all that were seen is in the sample with the same probability.
  ++seen_;
  if (sample_.size() < kSampleMax) {
    sample_.push_back(std::move(request));
  } else if (const std::uint64_t place = random_() % seen_; place < kSampleMax) {
    sample_[place] = std::move(request);
  }
}

std::optional<OldRequest> Replayer::Draw() {
  const MutexLock lock(mu_);
  const std::deque<OldRequest>& from = random_() % 2 == 0 ? sample_ : newest_;
  if (from.empty()) return std::nullopt;
  return from[random_() % from.size()];
}

}  // namespace embla::fault
