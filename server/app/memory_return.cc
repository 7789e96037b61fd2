#include "server/app/memory_return.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/base/heap.h"

namespace embla {
namespace {

// Less is not worth the work.
constexpr std::size_t kWorthReturning = std::size_t{2} << 20;

// 0: the kernel does not say.
std::size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryReturn::MemoryReturn(MemoryReturnOptions options) : options_(std::move(options)) {
  kept_least_ = kept_before_ = FreeHeapBytes();
  resident_least_ = ResidentBytes();
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
  const std::size_t resident = ResidentBytes();
  resident_least_ = std::min(resident_least_, resident);
  const bool is_at_rest = IsAtRest();
  // More requests will want the memory.
  if (!is_at_rest && idle <= options_.kept_bytes_max) return;
  // malloc counts what was given back as free, too. Its use between two looks shows only here.
  const bool was_used_again =
      is_at_rest && idle >= kWorthReturning && resident >= resident_least_ + kWorthReturning;
  if (idle < kept_least_ + kWorthReturning && !was_used_again) return;
  ::malloc_trim(0);
  kept_before_ = kept_least_ = FreeHeapBytes();
  resident_least_ = ResidentBytes();
}

// No requests have come since the last look.
bool MemoryReturn::IsAtRest() {
  if (!options_.requests) return true;
  const std::uint64_t before = std::exchange(requests_before_, options_.requests());
  return requests_before_ == before;
}

}  // namespace embla
