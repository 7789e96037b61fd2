// Threads of one device, for the inside of a batch. The caller works too, so a pool of one
// thread has no threads of its own and runs everything inline.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread. The threads serve one ParallelFor at a
// time (a device runs one batch at a time); one that comes meanwhile, as from inside of another,
// runs on its caller alone.
class ThreadPool {
 public:
  // Requires: threads >= 1, the caller of ParallelFor included.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls fn(begin, end) for disjoint ranges of at most `grain` that cover [0, n) exactly, on the
  // pool's threads and on this one; returns when all are done. The assignment of ranges to threads
  // is not fixed, so fn's result must not depend on it.
  //
  // Requires: grain >= 1.
  void ParallelFor(std::size_t n, std::size_t grain,
                   absl::FunctionRef<void(std::size_t begin, std::size_t end)> fn);

  // So many of the pool's threads, but no caller, keep out of loops from now on: something else
  // needs their cores.
  void KeepOut(std::size_t threads) {
    kept_out_.store(std::min(threads, workers_.size()), std::memory_order_relaxed);
  }

  // Threads that take part in a loop, its caller included.
  std::size_t threads() const {
    return workers_.size() + 1 - kept_out_.load(std::memory_order_relaxed);
  }

 private:
  struct Loop;
  void Work();
  static void Run(Loop& loop);

  Mutex mu_;
  CondVar changed_;
  Loop* loop_ ABSL_GUARDED_BY(mu_) = nullptr;  // The loop in progress.
  std::uint64_t loop_number_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t busy_ ABSL_GUARDED_BY(mu_) = 0;  // Workers inside loop_.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<std::size_t> kept_out_ = 0;  // Relaxed: a loop may still have the number before.
  std::vector<std::thread> workers_;
};

}  // namespace embla
