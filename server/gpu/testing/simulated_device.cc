#include "server/gpu/testing/simulated_device.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/gpu/testing/host_kernels.h"
#include "server/gpu/testing/simulated_stream.h"

namespace embla::gpu {
namespace {

constexpr std::align_val_t kPinnedAlignment{256};

DeviceProperties PropertiesOf(const SimulatedDeviceOptions& options) {
  DeviceProperties properties;
  properties.ordinal = options.ordinal;
  properties.name = "simulated";
  properties.bus_id = absl::StrCat("simulated:", options.ordinal);
  properties.memory_bytes = static_cast<std::int64_t>(options.memory_bytes);
  properties.memory_bytes_per_second = 1'000'000'000'000;
  properties.free_bytes = static_cast<std::int64_t>(options.memory_bytes - options.others_bytes);
  return properties;
}

}  // namespace

SimulatedDevice::SimulatedDevice(const SimulatedDeviceOptions& options)
    : Device(PropertiesOf(options)),
      options_(options),
      memory_(std::make_shared<SimulatedMemory>(options.memory_bytes - options.others_bytes)),
      reached_({memory_}) {}

SimulatedDevice::~SimulatedDevice() { EMBLA_CHECK(used_bytes() == 0 && pinned_bytes() == 0); }

SimulatedDevice::Opening::Opening(const SimulatedDevice& device)
    : memories_([&device] {
        const MutexLock lock(device.mu_);
        return device.reached_;
      }()) {
  for (const auto& memory : memories_) memory->Open();
}

SimulatedDevice::Opening::~Opening() {
  for (const auto& memory : memories_) memory->Close();
}

const KernelTable& SimulatedDevice::kernels() const {
  return options_.kernels == nullptr ? HostKernels() : *options_.kernels;
}

absl::Status SimulatedDevice::Check(int cuda_error, std::string_view what) {
  if (cuda_error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("simulated: ", ToAbsl(what), ": error ", cuda_error));
}

absl::StatusOr<std::unique_ptr<Stream>> SimulatedDevice::NewStream() {
  EMBLA_RETURN_IF_ERROR(Count(SimulatedFault::At::kAllocate));
  return std::make_unique<SimulatedStream>(*this);
}

absl::Status SimulatedDevice::EnableAccessTo(Device& other) {
  if (!options_.has_peer_access && other.properties().bus_id != properties().bus_id) {
    return absl::FailedPreconditionError(absl::StrCat("simulated device ", properties().ordinal,
                                                      " has no access to device ",
                                                      other.properties().ordinal));
  }
  const std::shared_ptr<SimulatedMemory>& memory = static_cast<SimulatedDevice&>(other).memory_;
  const MutexLock lock(mu_);
  if (std::ranges::count(reached_, memory) == 0) reached_.push_back(memory);
  return absl::OkStatus();
}

void SimulatedDevice::Inject(const SimulatedFault& fault) {
  const MutexLock lock(mu_);
  fault_ = fault;
}

absl::Status SimulatedDevice::Count(SimulatedFault::At at) {
  EMBLA_RETURN_IF_ERROR(health());
  SimulatedFault::Kind kind{};
  {
    const MutexLock lock(mu_);
    if (!fault_.has_value() || fault_->at != at) return absl::OkStatus();
    if (fault_->skip-- > 0) return absl::OkStatus();
    kind = fault_->kind;
    fault_.reset();
  }
  switch (kind) {
    case SimulatedFault::Kind::kOutOfMemory:
      return absl::ResourceExhaustedError("simulated: out of memory");
    case SimulatedFault::Kind::kRefused:
      return absl::InternalError("simulated: refused");
    case SimulatedFault::Kind::kStop:
      return Stop(absl::InternalError("simulated: an illegal memory access was encountered"));
  }
  EMBLA_CHECK(false);
}

absl::StatusOr<void*> SimulatedDevice::AllocateRaw(MemoryKind kind, std::size_t size) {
  if (options_.on_allocation != nullptr) options_.on_allocation();
  EMBLA_RETURN_IF_ERROR(Count(SimulatedFault::At::kAllocate));
  if (kind == MemoryKind::kDevice) {
    void* const data = memory_->Allocate(size);
    if (data != nullptr) return data;
    return absl::ResourceExhaustedError(
        absl::StrCat("simulated: ", size, " bytes asked for, ",
                     options_.memory_bytes - options_.others_bytes - used_bytes(), " are free"));
  }
  void* const data = ::operator new(size, kPinnedAlignment);
  std::memset(data, 0xff, size);  // NaNs: whoever reads what was not written sees it.
  const MutexLock lock(all_pinned().mu);
  all_pinned().allocations.Add(data, size);
  return data;
}

void SimulatedDevice::FreeRaw(MemoryKind kind, void* data) {
  if (options_.on_allocation != nullptr) options_.on_allocation();
  if (kind == MemoryKind::kDevice) return memory_->Free(data);
  {
    const MutexLock lock(all_pinned().mu);
    all_pinned().allocations.Remove(data);
  }
  ::operator delete(data, kPinnedAlignment);
}

SimulatedDevice::AllPinned& SimulatedDevice::all_pinned() {
  static AllPinned& all = *new AllPinned;
  return all;
}

bool SimulatedDevice::IsPinned(const void* data, std::size_t bytes) const {
  const MutexLock lock(all_pinned().mu);
  return all_pinned().allocations.Have(data, bytes);
}

}  // namespace embla::gpu
