// Loaded in front of the C library (LD_PRELOAD): a disk whose syncs take 8 ms, as those of a busy
// disk do, or EMBLA_SLOW_SYNC_MS.
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

namespace {

constexpr long kSyncMilliseconds = 8;

long SyncMilliseconds() {
  const char* const text = getenv("EMBLA_SLOW_SYNC_MS");
  return text == nullptr ? kSyncMilliseconds : strtol(text, nullptr, 10);
}

int SlowlyCall(const char* name, int descriptor) {
  const long milliseconds = SyncMilliseconds();
  const timespec took{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
  nanosleep(&took, nullptr);
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, name))(descriptor);
}

}  // namespace

extern "C" int fsync(int descriptor) { return SlowlyCall("fsync", descriptor); }
extern "C" int fdatasync(int descriptor) { return SlowlyCall("fdatasync", descriptor); }
