#include "server/log/direct_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/check.h"
#include "core/base/file_descriptor.h"
#include "core/base/log.h"

namespace embla {

DirectWriter::~DirectWriter() {
  const MutexLock turn(turn_);
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

std::size_t DirectWriter::unit() {
  // Smaller writes would leave parts of pages to the cache; disks ask for 512 bytes, or 4 KiB.
  static const std::size_t kUnit =
      std::max<std::size_t>(4096, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  return kUnit;
}

void DirectWriter::Begin() {
  if (thread_.joinable()) return;
  for (std::unique_ptr<char, Free>& buffer : buffers_) {
    buffer.reset(static_cast<char*>(std::aligned_alloc(unit(), kBufferBytes)));
    EMBLA_CHECK(buffer != nullptr);
  }
  thread_ = std::thread([this] { Loop(); });
}

bool DirectWriter::Works(const std::string& directory) {
  const std::string path = directory + "/probe";
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  int error = file.is_open() ? 0 : errno;
  ::unlink(path.c_str());
  const std::unique_ptr<char, Free> zeros(static_cast<char*>(std::aligned_alloc(unit(), unit())));
  EMBLA_CHECK(zeros != nullptr);
  std::memset(zeros.get(), 0, unit());
  if (error == 0) error = Run({file.number(), 0, std::string_view(zeros.get(), unit())});
  // Another error is not of this kind of writes: who writes next finds it again.
  if (error != EINVAL && error != EOPNOTSUPP) return true;
  LogInfo("log", "large writes go through the system's page cache directory=", directory,
          " reason=", std::error_code(error, std::generic_category()).message());
  return false;
}

int DirectWriter::Write(int descriptor, std::uint64_t offset,
                        absl::FunctionRef<std::string_view()> next) {
  const MutexLock turn(turn_);
  Begin();
  std::size_t filled = 0;
  const auto job = [&] {
    return Job{descriptor, offset, std::string_view(buffers_[next_buffer_].get(), filled)};
  };
  for (std::string_view piece = next(); !piece.empty(); piece = next()) {
    while (!piece.empty()) {
      if (filled == kBufferBytes) {
        if (const int error = HandOver(job()); error != 0) return error;
        offset += filled;
        filled = 0;
        next_buffer_ ^= 1;
      }
      const std::size_t count = std::min(piece.size(), kBufferBytes - filled);
      std::memcpy(buffers_[next_buffer_].get() + filled, piece.data(), count);
      filled += count;
      piece.remove_prefix(count);
    }
  }
  if (const int error = WaitForJob(); error != 0) return error;
  return Run(job());  // The last one is nobody else's to wait for.
}

int DirectWriter::HandOver(const Job& job) {
  if (const int error = WaitForJob(); error != 0) return error;
  const MutexLock lock(mu_);
  job_ = job;
  changed_.NotifyAll();
  return 0;
}

int DirectWriter::WaitForJob() {
  const MutexLock lock(mu_);
  while (!job_.bytes.empty()) changed_.Wait(mu_);
  return std::exchange(error_, 0);
}

void DirectWriter::Loop() {
  while (true) {
    Job job;
    {
      const MutexLock lock(mu_);
      while (job_.bytes.empty() && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
      job = job_;
    }
    const int error = Run(job);
    const MutexLock lock(mu_);
    error_ = error;
    job_ = {};
    changed_.NotifyAll();
  }
}

int DirectWriter::Run(const Job& job) {
  std::string_view left = job.bytes;
  while (!left.empty()) {
    const auto at = static_cast<off_t>(job.offset + (job.bytes.size() - left.size()));
    const ssize_t written = ::pwrite(job.descriptor, left.data(), left.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace embla
