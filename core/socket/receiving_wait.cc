#include "core/socket/receiving_wait.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/file_descriptor.h"
#include "core/base/short_wait.h"

namespace embla {
namespace {

// Each thread has one for all its waits, one after the other. Negative: no descriptors are left.
int EventOfThread() {
  thread_local const FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return event.number();
}

}  // namespace

void ReceivingWait::Add(const std::shared_ptr<FrameSocket>& socket) {
  if (socket == nullptr || count_ == kSocketsMax) return;
  thread_ = std::this_thread::get_id();
  wake_ = EventOfThread();
  if (wake_ < 0 || !socket->BeginReceiving()) return;
  sockets_[count_++] = socket;
}

void ReceivingWait::Wait() {
  std::array<pollfd, kSocketsMax + 1> waits;
  for (std::size_t i = 0; i < count_; ++i) {
    waits[i] = {.fd = sockets_[i]->number(), .events = POLLIN, .revents = 0};
  }
  waits[count_] = {.fd = wake_, .events = POLLIN, .revents = 0};
  thread_local ShortWait wait;
  wait.Until(
      [&](bool sleeps) { return ::poll(waits.data(), count_ + 1, sleeps ? -1 : 0) > 0 || sleeps; });
  if (waits[count_].revents != 0) {
    std::uint64_t wakes = 0;
    (void)!::read(wake_, &wakes, sizeof(wakes));
  }
  for (std::size_t i = count_; i-- > 0;) {
    if (waits[i].revents == 0 || sockets_[i]->ReceiveHere()) continue;
    std::swap(sockets_[i], sockets_[--count_]);
    sockets_[count_] = nullptr;
  }
}

void ReceivingWait::Wake() {
  if (thread_ == std::this_thread::get_id()) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
}

void ReceivingWait::Release() {
  while (count_ > 0) {
    sockets_[--count_]->EndReceiving();
    sockets_[count_] = nullptr;
  }
}

}  // namespace embla
