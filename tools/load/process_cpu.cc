#include "tools/load/process_cpu.h"

#include <ctime>

namespace embla::load {

double CpuSecondsOf(std::span<const pid_t> processes) {
  double sum = 0.0;
  for (const pid_t process : processes) {
    clockid_t clock = {};
    timespec time = {};
    // Counts in nanoseconds; /proc/PID/stat has ticks of 10 ms, a tenth of what a round takes.
    if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) continue;
    sum += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return sum;
}

double CpuSecondsOfThisProcess() {
  constexpr pid_t kThis[] = {0};
  return CpuSecondsOf(kThis);
}

}  // namespace embla::load
