// Gives memory that is free back to the kernel once a load is over.
//
// malloc keeps what was freed, for whoever asks next: after a flood of connections or requests a
// process would stay as large as it ever was. A thread looks now and then how much is kept; what is
// still kept at the next look is given back. (What a BufferPool retains, at most 256 MiB, stays.)
#pragma once

#include <cstddef>
#include <thread>

#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla {

class MemoryReturn {
 public:
  // Everything is given back within two looks.
  static constexpr absl::Duration kLook = absl::Seconds(4);

  explicit MemoryReturn(absl::Duration look = kLook);
  ~MemoryReturn();

 private:
  void Run();
  void Look();

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
