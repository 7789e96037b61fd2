// Gives memory that is free back to the kernel once a load is over.
//
// malloc and buffer pools keep what was freed, for whoever asks next: after a flood of connections
// or requests a process would stay as large as it ever was. A thread looks now and then how much is
// kept. Memory that was not needed by the next look is given back, unless requests came in between
// and it is no more than what may be kept under load (core/base/heap.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"

namespace embla {

struct MemoryReturnOptions {
  // Free memory is given back at the second look at which it is free, so within two looks after the
  // last request, or three when it became free during one.
  absl::Duration look = absl::Milliseconds(2500);
  // May be null; otherwise it is not owned and outlives the MemoryReturn.
  BufferPool* pool = nullptr;
  // How many requests have come so far; called by the thread. Empty: requests are not counted.
  std::function<std::uint64_t()> requests = {};
  std::size_t kept_bytes_max = 0;  // While requests come.
  Gauge kept_bytes = {};
};

class MemoryReturn {
 public:
  explicit MemoryReturn(MemoryReturnOptions options);
  ~MemoryReturn();

 private:
  void Run();
  void Look();
  bool IsAtRest();

  const MemoryReturnOptions options_;

  // Owned by the thread. In bytes.
  std::size_t kept_before_ = 0;     // At the last look.
  std::size_t kept_least_ = 0;      // Since the last return: fragments that cannot be given back.
  std::size_t resident_least_ = 0;  // Since the last return: memory of the process that is in RAM.
  std::uint64_t requests_before_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace embla
