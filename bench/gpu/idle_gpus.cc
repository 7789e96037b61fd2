// GPUs that do nothing: their memory is the host's, and what is queued on them is forgotten. A
// shard server that has them (embla-shard-idle-gpus) spends the processor time that a node with a
// GPU spends on its host, and nothing else. All rows are lower after an update: embla-bench looks
// whether its updates are applied.
//
// GPU 1 and above reach no pinned memory of callers: batches go by the lanes.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/gpu/gpus.h"
#include "server/gpu/kernel_table.h"
#include "server/storage/device_lanes.h"

namespace embla::gpu {
namespace {

constexpr std::align_val_t kAlignment{256};
constexpr std::uint32_t kGpus = 2;

// A kernel of any signature. None runs but those that tell how large a workspace is.
struct Nothing {
  template <typename... Arguments>
  using Kernel = int (*)(Arguments...);
  template <typename... Arguments>
  operator Kernel<Arguments...>() const {  // NOLINT(google-explicit-constructor)
    return [](Arguments...) { return 0; };
  }
};
constexpr Nothing kNothing;
const KernelTable kKernels = {
    kNothing, kNothing, kNothing,
    kNothing, kNothing, kNothing,
    kNothing, kNothing, kNothing,
    kNothing, kNothing, kNothing,
    kNothing, kNothing, {kNothing, kNothing, kNothing, kNothing, kNothing, kNothing}};

std::atomic<int> updates = 0;  // Queued on all GPUs.

class IdleStream final : public Stream {
 public:
  absl::Status CopyToDevice(void*, const void*, std::size_t) override { return absl::OkStatus(); }
  absl::Status CopyToHost(void* host, const void*, std::size_t bytes) override {
    const bool is_count = bytes <= LaneCargo::kAlignment;
    std::fill_n(static_cast<float*>(host), bytes / sizeof(float),
                is_count ? 0.0f : -static_cast<float>(updates.load()));
    return absl::OkStatus();
  }
  absl::Status Queue(std::string_view what, Work) override {
    if (what == "Update" || what == "Step") ++updates;
    return absl::OkStatus();
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<bool> IsDone() override { return true; }
  absl::Status Mark(MarkAt) override { return absl::OkStatus(); }
  absl::StatusOr<std::chrono::nanoseconds> BetweenMarks() override {
    return std::chrono::nanoseconds(0);
  }
  void* handle() override { return this; }
};

class IdleDevice final : public Device {
 public:
  explicit IdleDevice(DeviceProperties properties) : Device(std::move(properties)) {}

  bool IsPinned(const void*, std::size_t) const override { return properties().ordinal == 0; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<IdleStream>();
  }
  absl::Status EnableAccessTo(Device&) override { return absl::OkStatus(); }
  const KernelTable& kernels() const override { return kKernels; }
  absl::Status MakeCurrent() override { return absl::OkStatus(); }
  absl::Status Check(int, std::string_view) override { return absl::OkStatus(); }

 protected:
  absl::StatusOr<void*> AllocateRaw(MemoryKind, std::size_t size) override {
    return ::operator new(size, kAlignment);
  }
  void FreeRaw(MemoryKind, void* data) override { ::operator delete(data, kAlignment); }
};

DeviceProperties Describe(std::uint32_t ordinal) {
  DeviceProperties properties;
  properties.ordinal = ordinal;
  properties.name = "idle";
  properties.bus_id = absl::StrCat("idle:", ordinal);
  properties.memory_bytes = std::int64_t{64} << 30;
  properties.free_bytes = properties.memory_bytes;
  properties.memory_bytes_per_second = 1'000'000'000'000;
  return properties;
}

}  // namespace

absl::StatusOr<std::vector<DeviceProperties>> ListGpus() {
  std::vector<DeviceProperties> gpus;
  for (std::uint32_t ordinal = 0; ordinal < kGpus; ++ordinal) gpus.push_back(Describe(ordinal));
  return gpus;
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(std::uint32_t ordinal) {
  if (ordinal >= kGpus) return absl::NotFoundError(absl::StrCat("there is no GPU ", ordinal));
  return std::make_unique<IdleDevice>(Describe(ordinal));
}

}  // namespace embla::gpu
