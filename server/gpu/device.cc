#include "server/gpu/device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace embla::gpu {

absl::StatusOr<DeviceMemory> Device::Allocate(std::size_t size) {
  EMBLA_RETURN_IF_ERROR(health());
  if (size == 0) return DeviceMemory();
  EMBLA_ASSIGN_OR_RETURN(void* const data, AllocateCounted(MemoryKind::kDevice, size));
  return DeviceMemory(*this, data, size);
}

absl::StatusOr<PinnedMemory> Device::AllocatePinned(std::size_t size) {
  EMBLA_RETURN_IF_ERROR(health());
  if (size == 0) return PinnedMemory();
  EMBLA_ASSIGN_OR_RETURN(void* const data, AllocateCounted(MemoryKind::kPinned, size));
  return PinnedMemory(*this, data, size);
}

void Device::KeepApart(std::shared_ptr<ExchangeGate> gate) {
  const MutexLock lock(mu_);
  gate_ = std::move(gate);
}

std::shared_ptr<ExchangeGate> Device::gate() const {
  const MutexLock lock(mu_);
  return gate_;
}

absl::StatusOr<void*> Device::AllocateCounted(MemoryKind kind, std::size_t size) {
  const std::shared_ptr<ExchangeGate> gate = this->gate();
  const ExchangeGate::Allocation allocation(*gate);
  EMBLA_ASSIGN_OR_RETURN(void* const data, AllocateRaw(kind, size));
  held_bytes_[static_cast<std::size_t>(kind)].fetch_add(size, std::memory_order_relaxed);
  return data;
}

void Device::Free(MemoryKind kind, void* data, std::size_t size) {
  const std::shared_ptr<ExchangeGate> gate = this->gate();
  {
    const ExchangeGate::Allocation allocation(*gate);
    FreeRaw(kind, data);
  }
  held_bytes_[static_cast<std::size_t>(kind)].fetch_sub(size, std::memory_order_relaxed);
}

absl::Status Device::health() const {
  MutexLock lock(mu_);
  return health_;
}

absl::Status Device::Stop(const absl::Status& reason) {
  const absl::Status stopped = absl::UnavailableError(absl::StrCat(
      "GPU ", properties_.ordinal, " (", properties_.name, ") has stopped: ", reason.message(),
      ". Its rows are lost to this process; restart the node, which recovers them from its data "
      "directory if it has one"));
  {
    MutexLock lock(mu_);
    if (!health_.ok()) return health_;
    health_ = stopped;
  }
  LogError("gpu", "stopped ordinal=", properties_.ordinal, " name=", properties_.name,
           " reason=", reason.message());
  return stopped;
}

}  // namespace embla::gpu
