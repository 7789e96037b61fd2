// How the devices of a node add up partial sums, to the same sums each way (docs/gpu.md), and which
// way is the fastest for given devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/collective/communicator.h"
#include "server/collective/nccl_library.h"
#include "server/gpu/device.h"

namespace embla {

enum class Collectives : std::uint8_t {
  kAuto = 0,  // The fastest of the others that is possible: ChooseCollectives finds it.
  kHost = 1,  // Any devices.
  kPeer = 2,  // GPUs that read one another's memory.
  kNccl = 3,  // Different GPUs.
};

std::string_view NameOf(Collectives collectives);

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// The communicators of devices 0..gpus.size()-1; a device that is no GPU is null. Those among GPUs
// go on through the host's memory when that fails. `nccl` is loaded with kNccl, is not null then,
// and outlives them, as the GPUs do.
//
// FailedPrecondition: the devices cannot meet so; says why. Requires: not kAuto.
absl::StatusOr<Communicators> MakeCommunicators(Collectives collectives,
                                                std::span<gpu::Device* const> gpus,
                                                std::unique_ptr<NcclLibrary>* nccl);

struct CollectivesChoice {
  Collectives collectives = Collectives::kHost;
  std::string why;  // How long each way took, or why it is not possible.
};

// Has the devices add up partial sums, of the size that a batch of lookups has, in every way that
// is possible for a few hundredths of a second, and compares the results. A way among GPUs is
// chosen if it is faster than the host's memory.
CollectivesChoice ChooseCollectives(std::span<gpu::Device* const> gpus);

}  // namespace embla
