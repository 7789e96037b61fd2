// The instruction set that the CPU kernels run on. Highway chooses the best one at the first call;
// only tests and benches choose themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace embla::kernels {

struct Target {
  std::int64_t mask = 0;  // Highway's bit.
  std::string name;       // For instance "AVX2".
};

// The targets that are compiled in and that this machine can run, best first.
std::vector<Target> SupportedTargets();

// The name of the one in use.
std::string ActiveTarget();

// Runs the kernels on one target while it lives; not thread-safe.
class TargetOverride {
 public:
  explicit TargetOverride(const Target& target);
  ~TargetOverride();
  TargetOverride(const TargetOverride&) = delete;
  TargetOverride& operator=(const TargetOverride&) = delete;
};

}  // namespace embla::kernels
