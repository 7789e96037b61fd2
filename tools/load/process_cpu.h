// CPU time of processes.
#pragma once

#include <span>

#include <sys/types.h>

namespace embla::load {

// User and system seconds so far, of all threads; a process that is gone counts 0.
double CpuSecondsOfThisProcess();
double CpuSecondsOf(std::span<const pid_t> processes);

}  // namespace embla::load
