#include "server/gpu/testing/simulated_device.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/gpu/testing/simulated_stream.h"

namespace embla::gpu {
namespace {

// Makes an address one that no processor follows.
constexpr std::uintptr_t kDeviceBit = std::uintptr_t{1} << 62;
constexpr std::align_val_t kAlignment{256};

std::uintptr_t AddressOf(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

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

std::byte* HostAddress(const void* device_data) {
  EMBLA_CHECK((AddressOf(device_data) & kDeviceBit) != 0);
  return reinterpret_cast<std::byte*>(AddressOf(device_data) ^ kDeviceBit);
}

SimulatedDevice::SimulatedDevice(const SimulatedDeviceOptions& options)
    : Device(PropertiesOf(options)), options_(options) {}

SimulatedDevice::~SimulatedDevice() {
  MutexLock lock(memory_mu_);
  EMBLA_CHECK(device_.empty() && pinned_.empty());
}

absl::StatusOr<std::unique_ptr<Stream>> SimulatedDevice::NewStream() {
  EMBLA_RETURN_IF_ERROR(Count(SimulatedFault::At::kAllocate));
  return std::make_unique<SimulatedStream>(*this);
}

absl::Status SimulatedDevice::EnableAccessTo(Device& other) {
  if (&other == this || other.properties().bus_id == properties().bus_id) return absl::OkStatus();
  if (options_.has_peer_access) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("simulated device ", properties().ordinal,
                                                    " has no access to device ",
                                                    other.properties().ordinal));
}

void SimulatedDevice::Inject(const SimulatedFault& fault) {
  MutexLock lock(memory_mu_);
  fault_ = fault;
}

absl::Status SimulatedDevice::Count(SimulatedFault::At at) {
  EMBLA_RETURN_IF_ERROR(health());
  SimulatedFault::Kind kind{};
  {
    MutexLock lock(memory_mu_);
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
  EMBLA_RETURN_IF_ERROR(Count(SimulatedFault::At::kAllocate));
  MutexLock lock(memory_mu_);
  const bool on_device = kind == MemoryKind::kDevice;
  const std::size_t free = options_.memory_bytes - options_.others_bytes - Total(device_);
  if (on_device && size > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("simulated: ", size, " bytes asked for, ", free, " are free"));
  }
  void* const memory = ::operator new(size, kAlignment);
  std::memset(memory, 0xff, size);  // NaNs: whoever reads what was not written sees it.
  const std::uintptr_t data = AddressOf(memory);
  EMBLA_CHECK((data & kDeviceBit) == 0);
  (on_device ? device_ : pinned_).emplace(data, size);
  if (!on_device) {
    MutexLock all_lock(all_pinned().mu);
    all_pinned().ranges.emplace(data, size);
  }
  return reinterpret_cast<void*>(on_device ? data | kDeviceBit : data);
}

void SimulatedDevice::FreeRaw(MemoryKind kind, void* data) {
  MutexLock lock(memory_mu_);
  const bool on_device = kind == MemoryKind::kDevice;
  void* const real = on_device ? HostAddress(data) : data;
  EMBLA_CHECK((on_device ? device_ : pinned_).erase(AddressOf(real)) == 1);
  if (!on_device) {
    MutexLock all_lock(all_pinned().mu);
    all_pinned().ranges.erase(AddressOf(real));
  }
  ::operator delete(real, kAlignment);
}

SimulatedDevice::AllPinned& SimulatedDevice::all_pinned() {
  static AllPinned& all = *new AllPinned;
  return all;
}

bool SimulatedDevice::IsPinned(const void* data, std::size_t bytes) const {
  MutexLock lock(all_pinned().mu);
  return Has(all_pinned().ranges, AddressOf(data), bytes);
}

bool SimulatedDevice::Has(const Ranges& ranges, std::uintptr_t data, std::size_t bytes) {
  auto next = ranges.upper_bound(data);
  if (next == ranges.begin()) return false;
  const auto& [begin, size] = *--next;
  return data - begin <= size && bytes <= size - (data - begin);
}

std::size_t SimulatedDevice::Total(const Ranges& ranges) {
  std::size_t total = 0;
  for (const auto& [begin, size] : ranges) total += size;
  return total;
}

std::size_t SimulatedDevice::used_bytes() const {
  MutexLock lock(memory_mu_);
  return Total(device_);
}

std::size_t SimulatedDevice::pinned_bytes() const {
  MutexLock lock(memory_mu_);
  return Total(pinned_);
}

std::byte* SimulatedDevice::Translate(const void* data, std::size_t bytes) const {
  if ((AddressOf(data) & kDeviceBit) == 0) return TranslatePinned(data, bytes);
  std::byte* const real = HostAddress(data);
  MutexLock lock(memory_mu_);
  EMBLA_CHECK(Has(device_, AddressOf(real), bytes));
  return real;
}

std::byte* SimulatedDevice::TranslatePinned(const void* data, std::size_t bytes) {
  MutexLock lock(all_pinned().mu);
  EMBLA_CHECK(Has(all_pinned().ranges, AddressOf(data), bytes));
  return static_cast<std::byte*>(const_cast<void*>(data));
}

}  // namespace embla::gpu
