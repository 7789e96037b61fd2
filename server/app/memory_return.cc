#include "server/app/memory_return.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace embla {
namespace {

// Less is not worth the work.
constexpr std::size_t kWorthReturning = std::size_t{2} << 20;

std::size_t KeptBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.fordblks;
}

}  // namespace

void KeepFewArenas() {
  if (std::getenv("MALLOC_ARENA_MAX") != nullptr) return;
  const unsigned int cores = std::thread::hardware_concurrency();
  ::mallopt(M_ARENA_MAX, static_cast<int>(std::max(cores / 8, 1u)));
}

MemoryReturn::MemoryReturn(BufferPool* pool, absl::Duration look) : pool_(pool), look_(look) {
  kept_least_ = kept_before_ = KeptBytes();
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
      if (!stopping_) changed_.WaitFor(mu_, look_);
      if (stopping_) return;
    }
    Look();
  }
}

void MemoryReturn::Look() {
  if (pool_ != nullptr) pool_->ReturnIdle();
  const std::size_t kept = KeptBytes();
  const std::size_t idle = std::min(kept, kept_before_);
  kept_before_ = kept;
  kept_least_ = std::min(kept_least_, kept);
  if (idle < kept_least_ + kWorthReturning) return;
  ::malloc_trim(0);
  kept_before_ = kept_least_ = KeptBytes();
}

}  // namespace embla
