// Collectives among the GPUs of a node. Floats come from host memory and go back there; between the
// GPUs they travel by a GpuExchange.
//
// A reduction sends every rank its piece of everybody's input and adds what arrives in rank order:
// as many bytes as a ring moves, in one step, with the sums of the host's communicator. Ranks agree
// on the host that all of them can go on before any of them enters the exchange, so that a size
// that differs or a GPU without memory is an error on every rank and not a hang.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "server/collective/communicator.h"
#include "server/collective/gpu_exchange.h"
#include "server/collective/nccl_library.h"
#include "server/gpu/device.h"

namespace embla {

// The communicators of ranks 0..gpus.size()-1, rank r on gpus[r]; one thread each. The GPUs are not
// owned and outlive them.
//
// By direct access, also of several ranks on one GPU. FailedPrecondition: GPUs without it. Errors
// of gpu::Device.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakePeerCommunicators(
    std::span<gpu::Device* const> gpus);

// By NCCL; `nccl` is not owned and outlives them. FailedPrecondition: two ranks on one GPU.
// Unavailable: NCCL could not connect the GPUs. Errors of gpu::Device.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::span<gpu::Device* const> gpus, NcclLibrary& nccl, const NcclOptions& options = {});

}  // namespace embla
