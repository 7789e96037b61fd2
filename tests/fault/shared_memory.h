// Memory that the processes of a run share: a file that all of them map. A write of one is visible
// to the others, even when the writer was killed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace embla::fault {

// Words of 8 bytes, all 0 at first.
class SharedMemory {
 public:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free);  // A word with a lock would not work between processes.

  // Maps `path`, which is made where it is missing. Requires: all who map it say the same `words`.
  static absl::StatusOr<SharedMemory> Open(const std::string& path, std::size_t words);
  // Makes memory of this process alone.
  static SharedMemory Private(std::size_t words);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<Word> words() const { return words_; }

 private:
  explicit SharedMemory(std::span<Word> words) : words_(words) {}

  std::span<Word> words_;
};

// Waits until `word` is not `old`, at most `timeout`; returns what it is then.
std::uint32_t AwaitChange(const std::atomic<std::uint32_t>& word, std::uint32_t old,
                          absl::Duration timeout);
// Stores `value` and wakes all who wait, in whatever process.
void StoreAndWake(std::atomic<std::uint32_t>& word, std::uint32_t value);

}  // namespace embla::fault
