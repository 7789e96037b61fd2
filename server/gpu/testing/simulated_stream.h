// A stream of a simulated device.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>

#include "server/gpu/stream.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla::gpu {

class SimulatedStream final : public Stream {
 public:
  explicit SimulatedStream(SimulatedDevice& device) : device_(device) {}
  // Does what is queued, unless the device has stopped.
  ~SimulatedStream() override;

  absl::Status CopyToDevice(void* to, const void* host, std::size_t bytes) override;
  absl::Status CopyToHost(void* host, const void* from, std::size_t bytes) override;
  absl::Status Queue(std::string_view what, Work work) override;
  absl::Status Synchronize() override;
  absl::StatusOr<bool> IsDone() override;
  absl::Status Mark(MarkAt mark) override;
  absl::StatusOr<std::chrono::nanoseconds> BetweenMarks() override;
  void* handle() override { return static_cast<SimulatedStream*>(this); }

  // For test doubles of libraries that queue on streams: `attempt` is called until it says that the
  // work is done. Later work waits for it.
  absl::Status QueueAttempts(std::function<bool()> attempt);

 private:
  absl::Status QueueOnce(std::function<void()> work);
  // Runs queued work as far as possible, and returns whether that is all of it.
  bool RunQueued();

  SimulatedDevice& device_;  // Not owned; outlives this object.
  std::deque<std::function<bool()>> queued_;
  std::array<std::chrono::steady_clock::time_point, 2> marks_ = {};
};

}  // namespace embla::gpu
