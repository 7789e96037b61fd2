// A log's view of a directory, as an interface: tests put a disk behind it that forgets unsynced
// writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "server/log/direct_writer.h"

namespace embla {

// An open file that is appended to.
//
// Thread safety: Append, BeginSync and Truncate by one thread, Sync by any number at the same time.
class LogFile {
 public:
  virtual ~LogFile() = default;

  // Returns what comes next of the bytes to write, in pieces that live until all is written; none:
  // that is all.
  using Source = absl::FunctionRef<std::span<const std::string_view>()>;

  // Writes the `bytes` bytes that `next` gives; the disk may be at work before it has given all.
  // After an error a part of them may be there. ResourceExhausted: the disk is full.
  virtual absl::Status Append(std::size_t bytes, Source next) = 0;
  // Writes `pieces` one behind the other.
  absl::Status Append(std::span<const std::string_view> pieces);
  absl::Status Append(std::string_view data) { return Append(std::span(&data, 1)); }
  // Has the disk begin with what was appended, for a later Sync to find less to do; does not wait.
  virtual void BeginSync() {}
  // Makes everything appended before the call durable when it returns. An error is final.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Truncate(std::uint64_t size) = 0;
  virtual std::uint64_t size() const = 0;
};

// Names are those of files in the directory. They last only after SyncDirectory.
//
// Thread safety: every method may be called from any thread.
class LogStorage {
 public:
  virtual ~LogStorage() = default;

  // The directory's path, and a file's, for messages.
  virtual const std::string& path() const = 0;
  virtual std::string PathOf(const std::string& name) const { return path() + "/" + name; }
  virtual absl::StatusOr<std::vector<std::string>> List() const = 0;
  // `content` becomes the file's; its memory serves one file after the other.
  virtual absl::Status ReadInto(const std::string& name, std::string& content) const = 0;
  absl::StatusOr<std::string> Read(const std::string& name) const;
  // Its first `bytes` bytes, or all of a shorter one.
  virtual absl::StatusOr<std::string> ReadBegin(const std::string& name,
                                                std::size_t bytes) const = 0;

  // Opens `name` to append to; creates it where it is missing, with room for `reserved_bytes` where
  // the file system can promise that. ResourceExhausted: there is no room.
  virtual absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& name,
                                                        std::uint64_t reserved_bytes) = 0;
  // Replaces `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::Status SyncDirectory() = 0;
};

// A directory of the file system. Large appends go past the system's page cache (direct_writer.h)
// where the file system can do that, all but what they have of their first and last page.
//
// Failpoints: those of core/base/file.h, and log.reserve, log.rename, log.remove, log.direct.
class DirectoryLogStorage final : public LogStorage {
 public:
  struct Options {
    // Appends of so many bytes are large: the cache is done with a smaller one before the disk is.
    // At least two units of DirectWriter.
    std::size_t large_bytes = std::size_t{256} << 10;
  };

  // Creates `directory` where it is missing. FailedPrecondition: another process has it open.
  static absl::StatusOr<std::unique_ptr<DirectoryLogStorage>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  static absl::StatusOr<std::unique_ptr<DirectoryLogStorage>> Open(const std::string& directory,
                                                                   const Options& options);

  const std::string& path() const override { return path_; }
  absl::StatusOr<std::vector<std::string>> List() const override;
  absl::Status ReadInto(const std::string& name, std::string& content) const override;
  absl::StatusOr<std::string> ReadBegin(const std::string& name, std::size_t bytes) const override;
  absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& name,
                                                std::uint64_t reserved_bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status SyncDirectory() override;

 private:
  class File;

  DirectoryLogStorage(std::string path, FileLock lock, const Options& options)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        options_(options),
        writes_directly_(DirectWriter::Works(path_)) {}
  const std::string path_;
  const FileLock lock_;
  const Options options_;
  const bool writes_directly_;
  DirectWriter writer_;
};

}  // namespace embla
