// CPU time of this process.
#pragma once

#include <sys/resource.h>

namespace embla::train {

// Counts from its construction.
class ProcessCpu {
 public:
  ProcessCpu() : began_(Now()) {}
  double Seconds() const { return Now() - began_; }

 private:
  static double Now() {
    ::rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const ::timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  const double began_;
};

}  // namespace embla::train
