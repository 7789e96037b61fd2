// Several jobs of one batch, on the threads of a device.
#pragma once

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/storage/thread_pool.h"

namespace embla {

// The rows of each job, about.
using JobSizes = absl::InlinedVector<std::size_t, 8>;

// Calls `run` with the index of every job once: those that are more than a thread's share of all
// work one after the other, so that each has all threads for its inside, and the others side by
// side, a thread each. Returns the first error; some of the jobs after it have not run then.
absl::Status RunSideBySide(ThreadPool& pool, const JobSizes& sizes,
                           absl::FunctionRef<absl::Status(std::size_t job)> run);

}  // namespace embla
