// Gives memory that is free back to the kernel once a load is over.
//
// malloc and buffer pools keep what was freed, for whoever asks next: after a flood of connections
// or requests a process would stay as large as it ever was. A thread looks now and then how much is
// kept; what nobody has needed by the next look is given back.
#pragma once

#include <cstddef>
#include <thread>

#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/mutex.h"

namespace embla {

// Limits the heaps that malloc's threads spread over to one for eight cores, as long as it has only
// one: each keeps what was freed in it, so requests that come by this and that thread would take
// their memory as often. MALLOC_ARENA_MAX, where it is set, counts instead. Call before threads.
void KeepFewArenas();

class MemoryReturn {
 public:
  // Everything is given back within two looks, or three when it became free during one.
  static constexpr absl::Duration kLook = absl::Seconds(3);

  // `pool` may be null; otherwise it is not owned and outlives this object.
  explicit MemoryReturn(BufferPool* pool, absl::Duration look = kLook);
  ~MemoryReturn();

 private:
  void Run();
  void Look();

  BufferPool* const pool_;
  const absl::Duration look_;

  // Owned by the thread. In bytes.
  std::size_t kept_before_ = 0;  // At the last look.
  std::size_t kept_least_ = 0;   // Since the last return: fragments that cannot be given back.

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace embla
