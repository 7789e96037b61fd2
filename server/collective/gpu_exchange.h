// How floats get from the memory of one GPU of a node to that of another: what is below a
// GpuCommunicator. Implementations: direct access (peer_exchange.h) and NCCL (nccl_exchange.h).
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "server/gpu/stream.h"

namespace embla {

struct SendPiece {
  const float* data = nullptr;  // On the rank's GPU.
  std::size_t count = 0;
};
struct ReceivePiece {
  float* data = nullptr;  // On the rank's GPU.
  std::size_t count = 0;
};

// One rank's end. Thread safety: its rank's thread, and Abort from any.
class GpuExchange {
 public:
  virtual ~GpuExchange() = default;

  // Sends sends[r] to rank r and takes receives[s] from rank s, after what is queued on `stream`
  // (of the rank's GPU). Done when it returns, on all ranks. Every rank calls it, with sizes that
  // fit; pieces do not overlap.
  //
  // Errors: Aborted (a rank has left, or did not come in time), those of gpu::Device. After one,
  // this exchange is of no use on any rank.
  virtual absl::Status Exchange(std::span<const SendPiece> sends,
                                std::span<const ReceivePiece> receives, gpu::Stream& stream) = 0;

  // Makes every rank's Exchange return Aborted, for good.
  virtual void Abort() = 0;
};

}  // namespace embla
