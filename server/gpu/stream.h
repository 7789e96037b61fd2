// A queue of work on one GPU. Everything but Synchronize queues and returns; work runs in the order
// in which it was queued.
//
// Pointers are memory of the stream's device, unless they are named `host`: those are pinned. Both
// stay as they are until Synchronize. Kernels read and write pinned memory, too, at the speed of
// the link.
//
// Thread safety: one thread at a time; several streams of a device may be used at once.
// Errors: those of Device, by any call, also for work that was queued earlier.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla::gpu {

class Stream {
 public:
  virtual ~Stream() = default;

  virtual absl::Status CopyToDevice(void* to, const void* host, std::size_t bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* from, std::size_t bytes) = 0;

  // Queues what `work` queues on `handle`, which is handle(), and returns the Status of the CUDA
  // error that it returns. `what` names it in messages.
  //
  // A simulated device may call `work` as late as in Synchronize: it has what it uses by value.
  using Work = std::function<int(void* handle)>;
  virtual absl::Status Queue(std::string_view what, Work work) = 0;
  // Queues a kernel of the device's kernels() with these arguments, which are copied. Not for one
  // that takes host memory.
  template <typename Kernel, typename... Arguments>
  absl::Status Launch(std::string_view what, Kernel kernel, const Arguments&... arguments) {
    return Queue(what, [=](void* handle) { return kernel(arguments..., handle); });
  }

  // Waits until all of it is done. After an error, too, nothing is under way.
  virtual absl::Status Synchronize() = 0;
  // Whether all of it is done; does not wait.
  virtual absl::StatusOr<bool> IsDone() = 0;

  // Marks the time at which the queue reaches this point. The latest call for a mark counts.
  enum class MarkAt : std::uint8_t { kBegin, kEnd };
  virtual absl::Status Mark(MarkAt mark) = 0;
  // How long the GPU took from one mark to the other. Requires: both were set, and all is done.
  virtual absl::StatusOr<std::chrono::nanoseconds> BetweenMarks() = 0;

  // Handle for libraries that queue work: the cudaStream_t of a CUDA stream, the address of a
  // simulated one.
  virtual void* handle() = 0;
};

}  // namespace embla::gpu
