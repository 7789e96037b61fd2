// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace embla {

// A program with fewer refuses to start: one connection takes two, and journals and libraries take
// theirs.
inline constexpr std::size_t kDescriptorsMin = 4096;

// Raises the soft limit to the hard one.
// Errors: FailedPrecondition (the hard limit is below `at_least`; says how to raise it).
absl::Status RaiseDescriptorLimit(std::size_t at_least);

// The soft limit as it is now.
std::size_t DescriptorLimit();

}  // namespace embla
