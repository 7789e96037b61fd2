#include "tools/load/process_use.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace embla::load {
namespace {

// Counts in nanoseconds; /proc/PID/stat has ticks of 10 ms, a tenth of what a round takes.
double CpuSecondsOf(pid_t process) {
  clockid_t clock = {};
  timespec time = {};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double SleepsOf(pid_t process) {
  constexpr std::string_view kField = "voluntary_ctxt_switches:";
  double sleeps = 0.0;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"), error)) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(kField)) sleeps += std::atof(line.c_str() + kField.size());
    }
  }
  return sleeps;
}

}  // namespace

ProcessUse UseOf(std::span<const pid_t> processes) {
  ProcessUse sum;
  for (const pid_t process : processes) sum += {CpuSecondsOf(process), SleepsOf(process)};
  return sum;
}

ProcessUse UseOfThisProcess() {
  const pid_t self[] = {::getpid()};
  return UseOf(self);
}

}  // namespace embla::load
