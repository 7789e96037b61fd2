#include "tests/fault/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/check.h"

namespace embla::fault {
namespace {

std::span<SharedMemory::Word> Map(int file, std::size_t words) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const memory =
      ::mmap(nullptr, words * sizeof(SharedMemory::Word), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) return {};
  return {static_cast<SharedMemory::Word*>(memory), words};
}

long Futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Open(const std::string& path, std::size_t words) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(absl::StrCat("cannot open ", path));
  std::span<Word> mapped;
  if (::ftruncate(file, static_cast<off_t>(words * sizeof(Word))) == 0) mapped = Map(file, words);
  ::close(file);
  if (mapped.empty()) return absl::UnavailableError(absl::StrCat("cannot map ", path));
  return SharedMemory(mapped);
}

SharedMemory SharedMemory::Private(std::size_t words) {
  const std::span<Word> mapped = Map(-1, words);
  EMBLA_CHECK(!mapped.empty());
  return SharedMemory(mapped);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : words_(std::exchange(other.words_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(words_, other.words_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!words_.empty()) ::munmap(words_.data(), words_.size_bytes());
}

std::uint32_t AwaitChange(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                          absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  std::uint32_t value = word.load();
  for (absl::Duration left = timeout; value == old && left > absl::ZeroDuration();
       left = until - absl::Now()) {
    const timespec wait = absl::ToTimespec(left);
    Futex(word, FUTEX_WAIT, old, &wait);
    value = word.load();
  }
  return value;
}

void StoreAndWake(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  word.store(value);
  Futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace embla::fault
