// How a verb cuts its workspace into parts.
#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

// Parts one after the other, 256-byte aligned each. Without memory it only counts: the function
// that lays a verb's parts out also says how many bytes they need.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(const Workspace& workspace) : workspace_(workspace) {}

  // Uninitialised room for `count` elements. Null without memory.
  template <typename T>
  T* Take(std::size_t count) {
    void* const part = Here();
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return static_cast<T*>(part);
  }
  // Returns the part that is not taken. Requires: fits().
  Workspace Rest() const { return {Here(), workspace_.bytes - used_}; }

  std::size_t used() const { return used_; }
  bool fits() const { return used_ <= workspace_.bytes; }

 private:
  static constexpr std::size_t kAlignment = 256;

  void* Here() const {
    return workspace_.base == nullptr ? nullptr : static_cast<std::byte*>(workspace_.base) + used_;
  }

  Workspace workspace_;
  std::size_t used_ = 0;
};

}  // namespace embla::kernels::cuda
