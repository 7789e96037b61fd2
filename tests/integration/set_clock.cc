// Loaded in front of the C library (LD_PRELOAD): a machine whose clock has been set. It is off by
// as many seconds as the file $EMBLA_TEST_CLOCK says, an int64 that may change at any time.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace {

const std::atomic<std::int64_t>& Offset() {
  static const void* const memory = [] {
    const int file = open(getenv("EMBLA_TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    return mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
  }();
  return *static_cast<const std::atomic<std::int64_t>*>(memory);
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(clockid_t, struct timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += Offset().load(std::memory_order_relaxed);
  return result;
}
