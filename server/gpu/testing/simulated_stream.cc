#include "server/gpu/testing/simulated_stream.h"

#include <cstring>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::gpu {

absl::Status SimulatedStream::QueueOnce(std::function<void()> work) {
  return QueueAttempts([work = std::move(work)] {
    work();
    return true;
  });
}

absl::Status SimulatedStream::QueueAttempts(std::function<bool()> attempt) {
  EMBLA_RETURN_IF_ERROR(device_.Count(SimulatedFault::At::kQueue));
  queued_.push_back(std::move(attempt));
  if (!device_.is_late()) RunQueued();
  return absl::OkStatus();
}

SimulatedStream::~SimulatedStream() {
  if (device_.health().ok()) RunQueued();
}

bool SimulatedStream::RunQueued() {
  if (queued_.empty()) return true;
  const SimulatedDevice::Opening opening(device_);
  while (!queued_.empty() && queued_.front()()) queued_.pop_front();
  return queued_.empty();
}

absl::Status SimulatedStream::Synchronize() {
  const absl::Status status = device_.Count(SimulatedFault::At::kSynchronize);
  // A device that stops may have done any part of its work.
  if (!device_.health().ok()) return status;
  while (!RunQueued()) std::this_thread::yield();
  return status;
}

absl::StatusOr<bool> SimulatedStream::IsDone() {
  EMBLA_RETURN_IF_ERROR(device_.health());
  return RunQueued();
}

// Not a call that faults are injected at: it changes nothing.
absl::Status SimulatedStream::Mark(MarkAt mark) {
  EMBLA_RETURN_IF_ERROR(device_.health());
  auto set = [this, mark] {
    marks_[static_cast<std::size_t>(mark)] = std::chrono::steady_clock::now();
    return true;
  };
  // Without opening the memory for it, which would be most of the time of many small pieces.
  if (!device_.is_late() && queued_.empty()) {
    set();
  } else {
    queued_.emplace_back(std::move(set));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::chrono::nanoseconds> SimulatedStream::BetweenMarks() {
  EMBLA_RETURN_IF_ERROR(device_.health());
  EMBLA_CHECK(queued_.empty());
  return marks_[1] - marks_[0];
}

absl::Status SimulatedStream::CopyToDevice(void* to, const void* host, std::size_t bytes) {
  return QueueOnce([=, this] {
    if (bytes == 0) return;
    EMBLA_CHECK(device_.Has(to, bytes) && device_.IsPinned(host, bytes));
    std::memcpy(to, host, bytes);
  });
}

absl::Status SimulatedStream::CopyToHost(void* host, const void* from, std::size_t bytes) {
  return QueueOnce([=, this] {
    if (bytes == 0) return;
    EMBLA_CHECK(device_.Has(from, bytes) && device_.IsPinned(host, bytes));
    std::memcpy(host, from, bytes);
  });
}

// An error is a bug of the caller; late work has nobody to return it to.
absl::Status SimulatedStream::Queue(std::string_view, Work work) {
  return QueueOnce([this, work = std::move(work)] { EMBLA_CHECK(work(handle()) == 0); });
}

}  // namespace embla::gpu
