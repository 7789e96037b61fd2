// Writes runs of bytes to files past the system's page cache (O_DIRECT). The cache would find pages
// for each run, copy it there and write them on another thread, and nobody reads them.
//
// Such writes are from aligned memory: bytes are copied into one of two buffers while the other one
// is being written, which costs less than a copy into pages that no core's cache has.
//
// Thread safety: every method may be called from any thread; writes take turns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/functional/function_ref.h"
#include "core/base/mutex.h"

namespace embla {

class DirectWriter {
 public:
  DirectWriter() = default;
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  // Offsets and sizes of writes are multiples of it.
  static std::size_t unit();
  // Whether files in `directory` take such writes; logs why not. Tries it with a file `probe`.
  static bool Works(const std::string& directory);

  // Writes what `next` gives until that is empty, one piece behind the other, to `offset` of a file
  // that was opened with O_DIRECT. The disk may be at work before it has given all. Returns 0 or
  // the errno of a write that failed: a part of the bytes may be there.
  int Write(int descriptor, std::uint64_t offset, absl::FunctionRef<std::string_view()> next)
      ABSL_LOCKS_EXCLUDED(turn_);

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  struct Job {
    int descriptor = -1;
    std::uint64_t offset = 0;
    std::string_view bytes;
  };

  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void Loop();
  // Both wait for the job before, and return its error instead if it had one.
  int HandOver(const Job& job) ABSL_LOCKS_EXCLUDED(mu_);
  int WaitForJob() ABSL_LOCKS_EXCLUDED(mu_);
  static int Run(const Job& job);

  Mutex turn_;  // Before mu_. Held through a Write.
  std::array<std::unique_ptr<char, Free>, 2> buffers_ ABSL_GUARDED_BY(turn_);
  std::size_t next_buffer_ ABSL_GUARDED_BY(turn_) = 0;

  Mutex mu_;
  CondVar changed_;
  Job job_ ABSL_GUARDED_BY(mu_);  // No bytes: there is none.
  int error_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(turn_);
};

}  // namespace embla
