#include "kernels/targets.h"

#include "hwy/highway.h"

namespace embla::kernels {

std::vector<Target> SupportedTargets() {
  std::vector<Target> targets;
  const std::int64_t mask = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = mask; rest != 0; rest &= rest - 1) {
    const std::int64_t bit = rest & -rest;
    targets.push_back({bit, hwy::TargetName(bit)});
  }
  return targets;
}

std::string ActiveTarget() {
  const std::int64_t mask = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(mask & -mask);
}

TargetOverride::TargetOverride(const Target& target) {
  hwy::SetSupportedTargetsForTest(target.mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TargetOverride::~TargetOverride() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace embla::kernels
