// An exchange by NCCL: over NVLink, PCIe or the host, whatever connects the GPUs best.
//
// One communicator per rank, used by its thread only. NCCL's kernels wait for those of the other
// ranks, so a rank does not wait for its GPU blindly: it looks again and again whether the work is
// done, whether NCCL reports an error, whether somebody has called Abort and whether the time is
// up, and leaves by ncclCommAbort, which ends the kernels that wait.
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
// errors.
absl::StatusOr<std::vector<std::unique_ptr<GpuExchange>>> MakeNcclExchanges(
    std::span<gpu::Device* const> gpus, NcclLibrary& nccl, const NcclOptions& options);

}  // namespace embla
