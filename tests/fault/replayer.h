// A client that lives in the past: keeps update requests that were sent once, and sends them again
// much later, under their old plan, session and seq, to the node they went to or to another one.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::fault {

struct OldRequest {
  int shard = 0;  // Shard server that received it.
  std::string method;
  grpc::ByteBuffer bytes;
};

// Thread safety: every method may be called from any thread.
class Replayer {
 public:
  explicit Replayer(std::uint64_t seed) : random_(seed) {}

  // Keeps some of what it is told: a sample of everything so far, and the newest.
  void Witness(OldRequest request);
  std::optional<OldRequest> Draw();

 private:
  static constexpr std::size_t kSampleMax = 512;
  static constexpr std::size_t kNewestMax = 64;

  Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::uint64_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<OldRequest> sample_ ABSL_GUARDED_BY(mu_);
  std::deque<OldRequest> newest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::fault
