// The processor time that processes take, and how often they sleep.
#pragma once

#include <span>

#include <sys/types.h>

namespace embla::load {

struct ProcessUse {
  double cpu_seconds = 0.0;  // User and system.
  double sleeps = 0.0;       // How often a thread gave its processor up to wait for something.

  ProcessUse& operator+=(const ProcessUse& other) {
    cpu_seconds += other.cpu_seconds;
    sleeps += other.sleeps;
    return *this;
  }
  ProcessUse operator-(const ProcessUse& other) const {
    return {cpu_seconds - other.cpu_seconds, sleeps - other.sleeps};
  }
};

// So far, of all threads, and of sleeps those of threads that run still; a process that is gone
// counts nothing.
ProcessUse UseOfThisProcess();
ProcessUse UseOf(std::span<const pid_t> processes);

}  // namespace embla::load
