// Collectives among the devices of one node. One Communicator per device ("rank"); every rank calls
// the same verbs in the same order from its own thread, and each call waits for all ranks.
//
// Sums add the ranks' contributions in rank order, element by element, starting from rank 0's
// value: the result is the same for every implementation that promises it and for any timing.
// Returning from a verb is a host-side barrier too: what any rank's thread did before its call
// happens before the return on every rank, also for memory that no verb knows of.
//
// Implementations: host memory (host_communicator.h); GPUs by direct access, also several ranks on
// one GPU, and by NCCL (gpu_communicator.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace embla {

// Thread safety: one thread per rank at a time.
// Errors: Aborted once any rank has called Abort; InvalidArgument when sizes differ between ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;

  virtual absl::Status Barrier() = 0;

  // in and out: count floats each; out may be in.
  virtual absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) = 0;

  // in: counts[0] + ... + counts[size-1] floats; out: counts[rank] floats, the sum over ranks of
  // the rank-th piece. `counts` is the same on every rank.
  virtual absl::Status ReduceScatterSum(std::span<const float> in,
                                        std::span<const std::size_t> counts,
                                        std::span<float> out) = 0;

  // out: counts[0] + ... floats, rank r's `in` (counts[r] floats) at its place.
  virtual absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                                 std::span<float> out) = 0;

  // Rank r sends send_counts[d] floats to rank d and receives receive_counts[s] from rank s;
  // both are packed in rank order. receive_counts of r from s == send_counts of s for r.
  virtual absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                                std::span<float> out,
                                std::span<const std::size_t> receive_counts) = 0;

  // The largest value of all ranks: agreement on an error code before anything is changed.
  virtual absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) = 0;

  // Wakes every rank that waits, for good. May be called from any thread.
  virtual void Abort() = 0;
};

}  // namespace embla
