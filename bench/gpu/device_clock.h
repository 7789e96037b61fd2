// The device's driver as benches need it: a clock, copies, the device's name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace embla::bench {

// Times what the default stream does between two calls.
class DeviceClock {
 public:
  DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock();

  void Start();
  // Waits for all that was queued. Microseconds since Start.
  double StopUs();

 private:
  struct Marks;
  std::unique_ptr<Marks> marks_;
};

// Copies on the default stream, by the driver.
void QueueDriversCopy(const std::byte* from, std::byte* to, std::size_t bytes);

// For instance "NVIDIA H200". Requires: there is a device.
std::string DeviceName();

}  // namespace embla::bench
