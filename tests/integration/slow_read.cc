// Loaded in front of the C library (LD_PRELOAD): a disk that takes a second for every read of a
// segment of a node's log or snapshots.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr timespec kRead{.tv_sec = 1, .tv_nsec = 0};

bool IsSegment(int descriptor) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  return strstr(path, ".data/") != nullptr && strstr(path, "log-") != nullptr;
}

}  // namespace

extern "C" ssize_t read(int descriptor, void* bytes, size_t size) {
  static const auto real = reinterpret_cast<decltype(&read)>(dlsym(RTLD_NEXT, "read"));
  if (IsSegment(descriptor)) nanosleep(&kRead, nullptr);
  return real(descriptor, bytes, size);
}
