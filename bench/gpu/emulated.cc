// The ceilings as plain C++ (kernels/cuda/emulated), and a clock that only shows that it is read.
#include <chrono>
#include <cstring>

#include "bench/gpu/ceilings.cu"  // NOLINT
#include "bench/gpu/device_clock.h"

namespace embla::bench {

struct DeviceClock::Marks {
  std::chrono::steady_clock::time_point begin;
};

DeviceClock::DeviceClock() : marks_(std::make_unique<Marks>()) {}
DeviceClock::~DeviceClock() = default;
void DeviceClock::Start() { marks_->begin = std::chrono::steady_clock::now(); }
double DeviceClock::StopUs() {
  const std::chrono::duration<double, std::micro> passed =
      std::chrono::steady_clock::now() - marks_->begin;
  return passed.count();
}

void QueueDriversCopy(const std::byte* from, std::byte* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

std::string DeviceName() { return "emulated: no time of it means anything"; }

}  // namespace embla::bench
