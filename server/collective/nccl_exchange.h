// An exchange by NCCL: over NVLink, PCIe or the host, whatever connects the GPUs best.
//
// One communicator per rank, used by its thread only. Ranks wait for one another three times: on
// the host when they connect, on the host when two of them exchange for the first time, and on the
// GPU in every exchange. None of it is waited for blindly. Communicators do not block, and a rank
// looks again and again whether NCCL is done or reports an error, whether the GPU is done, whether
// somebody has called Abort and whether the time is up. It leaves by ncclCommAbort, which ends what
// waits; also at the end, since destroying a communicator would wait for the others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "server/collective/gpu_exchange.h"
#include "server/collective/nccl_library.h"
#include "server/gpu/device.h"

namespace embla {

// The ends of ranks 0..gpus.size()-1. `nccl` and `gpus` are not owned and outlive them.
// FailedPrecondition: two ranks on one GPU, which NCCL does not take. Unavailable: NCCL's own
// errors, a GPU that has stopped, or no connection in time.
absl::StatusOr<std::vector<std::unique_ptr<GpuExchange>>> MakeNcclExchanges(
    std::span<gpu::Device* const> gpus, NcclLibrary& nccl, const NcclOptions& options);

}  // namespace embla
