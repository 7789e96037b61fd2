// The devices of a shard server, as the command line names them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"

namespace embla {

// "cpu:N": N CPU devices of `memory_per_device` bytes each; 0: 80 % of this machine's memory
// (or of the container's) divided by N.
// Errors: InvalidArgument (not such a list), FailedPrecondition (a kind of device that this
// program was built without; says what is missing).
absl::StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::string& text,
                                                     std::int64_t memory_per_device);

// "64 GiB" as 68719476736: a number of bytes, or with K, M, G, T and optionally i and B.
// Errors: InvalidArgument.
absl::StatusOr<std::int64_t> ParseBytes(const std::string& text);

}  // namespace embla
