// Loaded in front of the C library (LD_PRELOAD): a disk whose syncs take 8 ms, as those of a busy
// disk do.
#include <dlfcn.h>
#include <time.h>

namespace {

constexpr long kSyncNanoseconds = 8'000'000;

int SlowlyCall(const char* name, int descriptor) {
  const timespec took{.tv_sec = 0, .tv_nsec = kSyncNanoseconds};
  nanosleep(&took, nullptr);
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, name))(descriptor);
}

}  // namespace

extern "C" int fsync(int descriptor) { return SlowlyCall("fsync", descriptor); }
extern "C" int fdatasync(int descriptor) { return SlowlyCall("fdatasync", descriptor); }
