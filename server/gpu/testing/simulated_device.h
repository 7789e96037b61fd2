// A GPU in host memory, for tests: the same verbs, computed by the CPU kernels, or by those of
// kernels/cuda, emulated (emulated_kernels.h).
//
// A simulated GPU, as strict as a real one: device memory has addresses that crash whoever reads
// them on the host, copies want pinned memory, and every access must lie inside one allocation.
// A violation is a bug of the caller and ends the test. Work runs when it is queued or only when
// somebody waits for it, the two ends of what a real stream may do: code that is right on both does
// not depend on a stream's speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "core/base/mutex.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "server/gpu/device.h"
#include "server/gpu/testing/id_kernels.h"

namespace embla::gpu {

// Kernels with the signatures of kernels/cuda, on host memory.
struct SimulatedKernels {
  decltype(&kernels::cuda::InitializeAsync) initialize;
  decltype(&kernels::cuda::InitializeIdsAsync) initialize_ids;
  decltype(&kernels::cuda::GatherAsync) gather;
  decltype(&kernels::cuda::ScatterAsync) scatter;
  decltype(&kernels::cuda::PoolAsync) pool;
  decltype(&kernels::cuda::StepAsync) step;
  decltype(&kernels::cuda::UpdateBatchBytes) update_bytes;
  decltype(&kernels::cuda::UpdateBatchAsync) update;
  decltype(&kernels::cuda::FillAsync) fill;
  decltype(&kernels::cuda::SumInOrderAsync) sum_in_order;
  IdKernels ids;
};

struct SimulatedDeviceOptions {
  enum class Pace : std::uint8_t { kEager, kLate };

  std::uint32_t ordinal = 0;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::size_t others_bytes = 0;  // Used by other processes.
  Pace pace = Pace::kLate;
  bool has_peer_access = true;                // Among simulated devices.
  const SimulatedKernels* kernels = nullptr;  // Null: the CPU's.
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
  absl::Status EnableAccessTo(Device& other) override;
  absl::Status MakeCurrent() override { return health(); }

  void Inject(const SimulatedFault& fault);

  std::size_t used_bytes() const;
  std::size_t pinned_bytes() const;

  // For its streams. The fault that is due at this call, or the device's health.
  absl::Status Count(SimulatedFault::At at);
  bool is_late() const { return options_.pace == SimulatedDeviceOptions::Pace::kLate; }
  // Null: the CPU's.
  const SimulatedKernels* kernels() const { return options_.kernels; }
  // The host's address of `bytes` bytes that kernels of this device may use.
  std::byte* Translate(const void* data, std::size_t bytes) const;
  static std::byte* TranslatePinned(const void* data, std::size_t bytes);

 protected:
  absl::StatusOr<void*> AllocateRaw(MemoryKind kind, std::size_t size) override;
  void FreeRaw(MemoryKind kind, void* data) override;

 private:
  // The size of each allocation, by address.
  using Ranges = std::map<std::uintptr_t, std::size_t>;
  // Pinned memory of all devices of the process: any of them reaches it.
  struct AllPinned {
    Mutex mu;
    Ranges ranges ABSL_GUARDED_BY(mu);
  };
  static AllPinned& all_pinned();
  static bool Has(const Ranges& ranges, std::uintptr_t data, std::size_t bytes);
  static std::size_t Total(const Ranges& ranges);

  const SimulatedDeviceOptions options_;
  mutable Mutex memory_mu_;
  Ranges device_ ABSL_GUARDED_BY(memory_mu_);
  Ranges pinned_ ABSL_GUARDED_BY(memory_mu_);
  std::optional<SimulatedFault> fault_ ABSL_GUARDED_BY(memory_mu_);
};

// The host's address of simulated device memory, whichever device it is of.
std::byte* HostAddress(const void* device_data);

}  // namespace embla::gpu
