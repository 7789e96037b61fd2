// Tells whether this process is the one that made an object. gRPC's threads do not survive a fork,
// so a client that is used in the child would wait for ever.
#pragma once

#include <cstdint>

namespace embla::python {

// Registers the handler that runs in the child of every fork. Call once, at import.
void WatchForks();

class ForkGuard {
 public:
  ForkGuard();
  // True in children that were forked after construction.
  bool forked() const;

 private:
  std::uint64_t generation_;
};

}  // namespace embla::python
