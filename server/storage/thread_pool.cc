#include "server/storage/thread_pool.h"

#include <algorithm>

#include "core/base/check.h"

namespace embla {

// One ParallelFor. Ranges are handed out by a counter, so that a slow thread does not hold up the
// others; with relaxed order, since mu_ separates the loop from what comes before and after.
struct ThreadPool::Loop {
  std::size_t n;
  std::size_t grain;
  absl::FunctionRef<void(std::size_t, std::size_t)> fn;
  std::size_t free_places;  // For workers; mu_ guards it.
  std::atomic<std::size_t> next = 0;
};

ThreadPool::ThreadPool(std::size_t threads) {
  EMBLA_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(Loop& loop) {
  for (;;) {
    const std::size_t begin = loop.next.fetch_add(loop.grain, std::memory_order_relaxed);
    if (begin >= loop.n) return;
    loop.fn(begin, begin + std::min(loop.grain, loop.n - begin));
  }
}

void ThreadPool::Work() {
  std::uint64_t seen = 0;
  for (;;) {
    Loop* loop = nullptr;
    {
      MutexLock lock(mu_);
      while (!stopping_ && (loop_ == nullptr || loop_number_ == seen || loop_->free_places == 0)) {
        changed_.Wait(mu_);
      }
      if (stopping_) return;
      seen = loop_number_;
      loop = loop_;
      --loop->free_places;
      ++busy_;
    }
    Run(*loop);
    MutexLock lock(mu_);
    if (--busy_ == 0) changed_.NotifyAll();
  }
}

void ThreadPool::ParallelFor(std::size_t n, std::size_t grain,
                             absl::FunctionRef<void(std::size_t, std::size_t)> fn) {
  EMBLA_CHECK(grain >= 1);
  const std::size_t helpers = threads() - 1;
  if (n <= grain) {
    if (n > 0) fn(0, n);
    return;
  }
  Loop loop{n, grain, fn, helpers};
  if (helpers == 0) {
    Run(loop);
    return;
  }
  bool alone;
  {
    MutexLock lock(mu_);
    alone = loop_ == nullptr && busy_ == 0;
    if (alone) {
      loop_ = &loop;
      ++loop_number_;
    }
  }
  if (!alone) {
    Run(loop);
    return;
  }
  for (std::size_t i = 0; i < helpers; ++i) changed_.NotifyOne();
  Run(loop);
  MutexLock lock(mu_);
  loop_ = nullptr;  // A worker that wakes up late finds nothing.
  while (busy_ != 0) changed_.Wait(mu_);
}

}  // namespace embla
