// Test support: the memory that a process really has.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

namespace embla::testing {

// Bytes of memory that are the process's alone and that the kernel may not simply take: anonymous
// pages less those that were offered to it (MADV_FREE). 0: there is no such process.
std::size_t UsedBytes(pid_t process = getpid());

}  // namespace embla::testing
