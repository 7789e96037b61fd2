// Threads as fibers (ucontext). A block's fibers take turns; one that waits at a meeting gives its
// turn back until the meeting's last thread has come. A round in which nobody got on is a deadlock.
#include "kernels/cuda/emulated/device.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/emulated/recording.h"

namespace embla::kernels::cuda::emulated {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated kernel, block %u.%u thread %u: %s\n", blockIdx.x, blockIdx.y,
               threadIdx.x, what);
  std::abort();
}

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  bool done = false;
};

// A place where the threads of a mask meet again and again. A thread may be one meeting ahead of
// the others, which still read the values of the last one: hence two rows of values.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  std::uint64_t number = 0;
  std::uint64_t values[2][kWarp] = {};
};

class Scheduler {
 public:
  void RunBlock(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    meetings_.clear();
    meetings_.resize((threads + kWarp - 1) / kWarp);
    barrier_arrived_ = 0;
    threads_ = threads;
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned t = 0; t < threads; ++t) Prepare(*fibers_[t]);
    unsigned running = threads;
    while (running > 0) {
      progress_ = false;
      running = 0;
      for (unsigned t = 0; t < threads; ++t) running += Turn(t) ? 1 : 0;
      if (running > 0 && !progress_) Fail("waits for threads that never come");
    }
  }

  const std::uint64_t* Meet(unsigned mask, std::uint64_t value) {
    const unsigned lane = threadIdx.x % kWarp;
    if ((mask >> lane & 1) == 0) Fail("meets others under a mask without its own lane");
    Meeting& meeting = MeetingOf(threadIdx.x / kWarp, mask);
    const std::uint64_t number = meeting.number;
    meeting.values[number % 2][lane] = value;
    meeting.arrived |= 1u << lane;
    progress_ = true;
    if (meeting.arrived == mask) {
      meeting.arrived = 0;
      ++meeting.number;
    }
    while (meeting.number == number) Wait();
    return meeting.values[number % 2];
  }

  void Barrier() {
    const std::uint64_t number = barrier_number_;
    progress_ = true;
    if (++barrier_arrived_ == threads_) {
      barrier_arrived_ = 0;
      ++barrier_number_;
    }
    while (barrier_number_ == number) Wait();
  }

 private:
  static void Enter();

  void Prepare(Fiber& fiber) {
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &home_;
    makecontext(&fiber.context, &Scheduler::Enter, 0);
  }

  // Whether the thread still runs afterwards.
  bool Turn(unsigned thread) {
    Fiber& fiber = *fibers_[thread];
    if (fiber.done) return false;
    current_ = &fiber;
    threadIdx = {thread, 0};
    swapcontext(&home_, &fiber.context);
    if (fiber.done) progress_ = true;
    return !fiber.done;
  }

  void Wait() {
    Fiber* const fiber = current_;
    swapcontext(&fiber->context, &home_);
  }

  Meeting& MeetingOf(unsigned warp, unsigned mask) {
    auto& list = meetings_[warp];
    for (const auto& meeting : list) {
      if (meeting->mask == mask) return *meeting;
    }
    list.push_back(std::make_unique<Meeting>());
    list.back()->mask = mask;
    return *list.back();
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  // By warp.
  unsigned threads_ = 0;
  unsigned barrier_arrived_ = 0;
  std::uint64_t barrier_number_ = 0;
  ucontext_t home_;
  Fiber* current_ = nullptr;
  bool progress_ = false;
};

Scheduler& SchedulerOfThread() {
  thread_local Scheduler scheduler;
  return scheduler;
}

void Scheduler::Enter() {
  Scheduler& scheduler = SchedulerOfThread();
  (*scheduler.body_)();
  scheduler.current_->done = true;
}

}  // namespace

void Run(const Grid& grid, const std::function<void()>& body) {
  gridDim = {grid.blocks, grid.chunks};
  blockDim = {grid.threads, 1};
  for (unsigned y = 0; y < grid.chunks; ++y) {
    for (unsigned x = 0; x < grid.blocks; ++x) {
      blockIdx = {x, y};
      SchedulerOfThread().RunBlock(grid.threads, body);
    }
  }
}

void QueueGrid(const Grid& grid, std::function<void()> body) {
  Queue([grid, body = std::move(body)] { Run(grid, body); }, 1);
}

void Queue(std::function<void()> work, unsigned launches) {
  if (recorded_work == nullptr) return work();
  recorded_work->push_back({std::move(work), launches});
}

const std::uint64_t* Exchange(unsigned mask, std::uint64_t value) {
  return SchedulerOfThread().Meet(mask, value);
}

void SyncBlock() { SchedulerOfThread().Barrier(); }

void CheckAlignment(const void* p, std::size_t size) {
  if (reinterpret_cast<std::uintptr_t>(p) % size != 0) Fail("touches a misaligned address");
}

}  // namespace embla::kernels::cuda::emulated
