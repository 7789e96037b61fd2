// A GPU in host memory, for tests, with kernels of the CPU (host_kernels.h) or those of
// kernels/cuda, emulated.
//
// A simulated GPU is as strict as a real one: device memory crashes whoever uses it on the host,
// copies want pinned memory and the inside of one allocation, and kernels reach the memory of this
// device and of those that it has access to. A violation is a bug of the caller and ends the test.
// Work runs when it is queued or only when somebody waits for it, the two ends of what a real
// stream may do: code that is right on both does not depend on a stream's speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "server/gpu/device.h"
#include "server/gpu/kernel_table.h"
#include "server/gpu/testing/simulated_memory.h"

namespace embla::gpu {

struct SimulatedDeviceOptions {
  enum class Pace : std::uint8_t { kEager, kLate };

  std::uint32_t ordinal = 0;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::size_t others_bytes = 0;  // Used by other processes.
  Pace pace = Pace::kLate;
  bool has_peer_access = true;           // Among simulated devices.
  const KernelTable* kernels = nullptr;  // Null: HostKernels().
  // Called while memory is allocated, and while it is given back.
  std::function<void()> on_allocation = nullptr;
};

// A single fault, after `skip` calls of that sort went well.
struct SimulatedFault {
  enum class At : std::uint8_t { kAllocate, kQueue, kSynchronize };
  enum class Kind : std::uint8_t {
    kOutOfMemory,
    kRefused,  // The call, nothing else.
    kStop,     // The device, for good.
  };

  At at = At::kQueue;
  Kind kind = Kind::kStop;
  std::uint32_t skip = 0;
};

class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(const SimulatedDeviceOptions& options = {});
  // Checks that all its memory has been given back.
  ~SimulatedDevice() override;

  bool IsPinned(const void* data, std::size_t bytes) const override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override;
  // `other` is a SimulatedDevice.
  absl::Status EnableAccessTo(Device& other) override;
  const KernelTable& kernels() const override;
  absl::Status MakeCurrent() override { return health(); }
  absl::Status Check(int cuda_error, std::string_view what) override;

  void Inject(const SimulatedFault& fault);

  std::size_t used_bytes() const { return held_bytes(MemoryKind::kDevice); }
  std::size_t pinned_bytes() const { return held_bytes(MemoryKind::kPinned); }

  // For its streams. The fault that is due at this call, or the device's health.
  absl::Status Count(SimulatedFault::At at);
  bool is_late() const { return options_.pace == SimulatedDeviceOptions::Pace::kLate; }
  // Whether these bytes are of one allocation on this device.
  bool Has(const void* data, std::size_t bytes) const { return memory_->Has(data, bytes); }
  // The memory that the device's kernels reach is open while it lives.
  class Opening {
   public:
    explicit Opening(const SimulatedDevice& device);
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    const std::vector<std::shared_ptr<SimulatedMemory>> memories_;
  };

 protected:
  absl::StatusOr<void*> AllocateRaw(MemoryKind kind, std::size_t size) override;
  void FreeRaw(MemoryKind kind, void* data) override;

 private:
  // Pinned memory of all devices of the process: any of them reaches it.
  struct AllPinned {
    Mutex mu;
    Allocations allocations ABSL_GUARDED_BY(mu);
  };
  static AllPinned& all_pinned();

  const SimulatedDeviceOptions options_;
  const std::shared_ptr<SimulatedMemory> memory_;
  mutable Mutex mu_;
  // Memory that kernels reach: the device's and its peers', whichever of them goes first.
  std::vector<std::shared_ptr<SimulatedMemory>> reached_ ABSL_GUARDED_BY(mu_);
  std::optional<SimulatedFault> fault_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::gpu
