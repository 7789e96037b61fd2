#include "server/app/memory_return.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "core/base/heap.h"

namespace embla {
namespace {

// Less is not worth the work.
constexpr std::size_t kWorthReturning = std::size_t{2} << 20;

}  // namespace

MemoryReturn::MemoryReturn(MemoryReturnOptions options) : options_(std::move(options)) {
  kept_least_ = kept_before_ = FreeHeapBytes();
  thread_ = std::thread([this] { Run(); });
}

MemoryReturn::~MemoryReturn() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void MemoryReturn::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      if (!stopping_) changed_.WaitFor(mu_, options_.look);
      if (stopping_) return;
    }
    Look();
    options_.kept_bytes.Set(static_cast<double>(kept_before_));
  }
}

void MemoryReturn::Look() {
  if (options_.pool != nullptr) options_.pool->ReturnIdle();
  const std::size_t kept = FreeHeapBytes();
  const std::size_t idle = std::min(kept, kept_before_);
  kept_before_ = kept;
  kept_least_ = std::min(kept_least_, kept);
  if (MayKeep(idle) || idle < kept_least_ + kWorthReturning) return;
  ::malloc_trim(0);
  kept_before_ = kept_least_ = FreeHeapBytes();
}

// Requests have come since the last look, and more of them will want the memory.
bool MemoryReturn::MayKeep(std::size_t idle) {
  if (!options_.requests) return false;
  const std::uint64_t before = std::exchange(requests_before_, options_.requests());
  return requests_before_ != before && idle <= options_.kept_bytes_max;
}

}  // namespace embla
