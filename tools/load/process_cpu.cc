#include "tools/load/process_cpu.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace embla::load {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double CpuSecondsOfOne(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0.0;
  // After the name: state, then numbers; the 12th and 13th word are user and system ticks.
  std::istringstream words(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) words >> skipped;
  double user = 0.0;
  double system = 0.0;
  words >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

double CpuSecondsOfThisProcess() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double CpuSecondsOf(std::span<const pid_t> processes) {
  double sum = 0.0;
  for (const pid_t process : processes) sum += CpuSecondsOfOne(process);
  return sum;
}

}  // namespace embla::load
