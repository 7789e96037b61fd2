// How a thread that waits for a reply receives it itself: the poller's thread need not be woken,
// and need not wake this one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <thread>

#include "core/socket/frame_socket.h"

namespace embla {

// Thread safety: Wake may be called from any thread, the rest from one.
class ReceivingWait {
 public:
  ReceivingWait() = default;
  ~ReceivingWait() { Release(); }
  ReceivingWait(const ReceivingWait&) = delete;
  ReceivingWait& operator=(const ReceivingWait&) = delete;

  // This thread is to receive what comes by `socket`, unless another one has begun to, or it
  // receives by many already. May be null.
  void Add(const std::shared_ptr<FrameSocket>& socket);
  // Whether there is anything to receive by.
  bool receives() const { return count_ > 0; }

  // Receives what comes next, or returns after Wake. The owners' functions run meanwhile. Requires:
  // receives().
  void Wait();
  // Ends a Wait that has begun or is about to. Of the thread that waits itself: nothing.
  void Wake();

  // Leaves the sockets to the poller's thread.
  void Release();

 private:
  static constexpr std::size_t kSocketsMax = 16;

  std::array<std::shared_ptr<FrameSocket>, kSocketsMax> sockets_;
  std::size_t count_ = 0;
  // Set by Add:
  std::thread::id thread_;
  int wake_ = -1;  // Its descriptor for wakes.
};

}  // namespace embla
