// Keeps allocations of GPU memory and exchanges between GPUs apart. In an exchange by NCCL, kernels
// of several GPUs wait for one another; an allocation may wait for what a GPU has queued, under
// locks of the driver that the launch on another GPU needs, so each would wait for the other.
//
// An exchange waits for allocations only while no other rank is in one: who has come is never kept
// from those who wait for it. An allocation waits until no rank is in an exchange.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::gpu {

// Thread safety: every method may be called from any thread.
class ExchangeGate {
 public:
  // One rank's part in an exchange, for as long as this lives. Its thread allocates nothing
  // meanwhile.
  class Exchange {
   public:
    explicit Exchange(ExchangeGate& gate) : gate_(gate) {
      const MutexLock lock(gate_.mu_);
      while (gate_.exchanging_ == 0 && gate_.allocating_ > 0) gate_.changed_.Wait(gate_.mu_);
      ++gate_.exchanging_;
    }
    ~Exchange() {
      const MutexLock lock(gate_.mu_);
      if (--gate_.exchanging_ == 0) gate_.changed_.NotifyAll();
    }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    ExchangeGate& gate_;
  };

  // Memory is allocated or given back while this lives, by several threads at once if they like.
  class Allocation {
   public:
    explicit Allocation(ExchangeGate& gate) : gate_(gate) {
      const MutexLock lock(gate_.mu_);
      ++gate_.allocating_;
      while (gate_.exchanging_ > 0) gate_.changed_.Wait(gate_.mu_);
    }
    ~Allocation() {
      const MutexLock lock(gate_.mu_);
      if (--gate_.allocating_ == 0) gate_.changed_.NotifyAll();
    }
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;

   private:
    ExchangeGate& gate_;
  };

 private:
  Mutex mu_;
  CondVar changed_;
  std::uint32_t exchanging_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint32_t allocating_ ABSL_GUARDED_BY(mu_) = 0;  // Including who waits.
};

}  // namespace embla::gpu
