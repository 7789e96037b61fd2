// One GPU: its memory, its streams, and whether it still works (docs/gpu.md).
//
// Implementations: CUDA (cuda_device.h), and one on host memory for tests
// (testing/simulated_device.h). Both give the same bits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "server/gpu/exchange_gate.h"
#include "server/gpu/memory.h"
#include "server/gpu/stream.h"

namespace embla::gpu {

struct KernelTable;

struct DeviceProperties {
  std::uint32_t ordinal = 0;  // The driver's number of the device.
  std::string name;           // Name of the model.
  std::string bus_id;         // Its place in the machine; the same for the same GPU only.
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;               // When it was opened.
  std::int64_t memory_bytes_per_second = 0;  // 0: not known.
};

// Thread safety: every method may be called from any thread.
//
// Errors of every verb, of its streams too:
//   ResourceExhausted  no memory; nothing has changed
//   Internal           a call was refused; nothing has changed
//   Unavailable        the device has stopped: names it and what it stopped for
//
// A device stops for good when the driver reports an error after which nothing on it can be trusted
// (an illegal address, a memory error that cannot be corrected), or when Stop is called. Other
// devices go on.
class Device : public MemorySource {
 public:
  explicit Device(DeviceProperties properties) : properties_(std::move(properties)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceProperties& properties() const { return properties_; }

  // size 0 gives an empty memory.
  absl::StatusOr<DeviceMemory> Allocate(std::size_t size);
  absl::StatusOr<PinnedMemory> AllocatePinned(std::size_t size);
  // Bytes of memory that was allocated and not given back.
  std::size_t held_bytes(MemoryKind kind) const {
    return held_bytes_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
  }
  // Whether streams may copy to and from these bytes, which are of one allocation, whichever device
  // they were allocated of.
  virtual bool IsPinned(const void* data, std::size_t bytes) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  // Lets this device's kernels read and write memory of `other`. FailedPrecondition: the two are
  // not connected so. OK when they are the same GPU.
  virtual absl::Status EnableAccessTo(Device& other) = 0;

  // From here on memory is allocated and given back while nobody is in an exchange by `gate`.
  void KeepApart(std::shared_ptr<ExchangeGate> gate);

  // The kernels to queue on its streams.
  virtual const KernelTable& kernels() const = 0;
  // How large a workspace a kernel needs: asks `bytes_of`, of kernels(), which queues nothing.
  template <typename BytesOf, typename... Arguments>
  absl::StatusOr<std::size_t> WorkspaceBytes(std::string_view what, BytesOf bytes_of,
                                             const Arguments&... arguments) {
    EMBLA_RETURN_IF_ERROR(MakeCurrent());
    std::size_t bytes = 0;
    EMBLA_RETURN_IF_ERROR(Check(bytes_of(arguments..., &bytes), what));
    return bytes;
  }

  // Makes it the one that the calling thread's calls of libraries act on.
  virtual absl::Status MakeCurrent() = 0;
  // The Status of a call's result, a CUDA error; one that stops the device has stopped it on
  // return.
  virtual absl::Status Check(int cuda_error, std::string_view what) = 0;

  // OK, or Unavailable once it has stopped.
  absl::Status health() const;
  // Stops the device, unless it has stopped already, and returns its health.
  absl::Status Stop(const absl::Status& reason);

 protected:
  virtual absl::StatusOr<void*> AllocateRaw(MemoryKind kind, std::size_t size) = 0;
  virtual void FreeRaw(MemoryKind kind, void* data) = 0;

 private:
  // Implements MemorySource for Memory.
  void Free(MemoryKind kind, void* data, std::size_t size) final;
  absl::StatusOr<void*> AllocateCounted(MemoryKind kind, std::size_t size);
  std::shared_ptr<ExchangeGate> gate() const;

  const DeviceProperties properties_;
  // Relaxed: for metrics.
  std::array<std::atomic<std::size_t>, kMemoryKinds> held_bytes_ = {};
  mutable Mutex mu_;
  absl::Status health_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ExchangeGate> gate_ ABSL_GUARDED_BY(mu_) = std::make_shared<ExchangeGate>();
};

}  // namespace embla::gpu
