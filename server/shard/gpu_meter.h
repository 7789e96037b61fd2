// Counts what the lanes of a device carry to its GPU and back, and what the GPU holds.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/metrics/gpu_metrics.h"
#include "server/gpu/device.h"
#include "server/storage/device_lanes.h"

namespace embla {

class GpuMeter final : public LaneObserver {
 public:
  // `metrics` may be null; `gpu` is not owned and outlives the meter.
  GpuMeter(Metrics* metrics, std::uint32_t device, const gpu::Device& gpu)
      : metrics_(metrics, device), gpu_(gpu) {
    metrics_.stopped.Set(0);
  }

  void OnTrip(const Trip& trip) override {
    metrics_.seconds.Add(std::chrono::duration<double>(trip.took).count());
    metrics_.kernel_seconds.Add(std::chrono::duration<double>(trip.kernels).count());
    metrics_.bytes_in.Add(static_cast<double>(trip.bytes_in));
    metrics_.bytes_out.Add(static_cast<double>(trip.bytes_out));
    metrics_.direct_bytes_in.Add(static_cast<double>(trip.direct_bytes_in));
    metrics_.direct_bytes_out.Add(static_cast<double>(trip.direct_bytes_out));
    if (trip.stopped) metrics_.stopped.Set(1);
    CountMemory();
  }

  // May be called from any thread.
  void CountMemory() const {
    metrics_.memory_bytes.Set(static_cast<double>(gpu_.held_bytes(gpu::MemoryKind::kDevice)));
    metrics_.pinned_bytes.Set(static_cast<double>(gpu_.held_bytes(gpu::MemoryKind::kPinned)));
  }

 private:
  const GpuMetrics metrics_;
  const gpu::Device& gpu_;  // Not owned; outlives this object.
};

}  // namespace embla
