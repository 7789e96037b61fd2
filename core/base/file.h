// Files whose content must survive a crash. Errors carry the path and errno's text: NotFound,
// PermissionDenied, ResourceExhausted (no space), else Unavailable.
// Failpoints: file.open, file.read, file.write (writes the first half, then fails), file.sync,
// file.truncate, file.rename, file.dir_sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla {

// An open file that is appended to. Closes when destroyed, without syncing.
// Thread safety: none.
class AppendFile {
 public:
  AppendFile() = default;  // Not open.
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  // Opens `path`, creating it when it does not exist. A created file is durable only after
  // SyncDirectory of its directory.
  static absl::StatusOr<AppendFile> Open(const std::string& path);

  // Writes all of `data`, or of `pieces` in their order, at the end. After an error a part of it
  // may be there.
  absl::Status Append(std::string_view data) { return Append(std::span(&data, 1)); }
  absl::Status Append(std::span<const std::string_view> pieces);
  // Counts bytes that were written at the end in another way.
  void CountAppended(std::uint64_t bytes) { size_ += bytes; }
  // Has the disk begin with what was appended since the last call, and does not wait: a later Sync
  // finds less to do. A hint, without an error.
  void BeginSync();
  // Waits until the disk has everything. After an error nothing may be assumed about any byte
  // written since the last Sync; asking again does not help.
  absl::Status Sync();
  // Cuts the file to its first `size` bytes.
  absl::Status Truncate(std::uint64_t size);

  bool is_open() const { return descriptor_ >= 0; }
  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t begun_bytes_ = 0;  // BeginSync has been called for them.
};

// Held until destroyed or the process ends. An advisory lock of the whole file.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // FailedPrecondition when another process, or another lock of this one, holds it.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

 private:
  int descriptor_ = -1;
};

// The error that writing `path` would end with now: for files that are written much later. Makes
// nothing.
absl::Status CheckWritable(const std::string& path);

// Inode and birth time of a file (its device, where the file system has no birth times): a copy of
// it has others.
absl::StatusOr<std::string> PlaceOfFile(const std::string& path);

// The part of a large file that the system's page cache does not have is read past it, where the
// file system can do that: the cache would have to find pages first, and copy once more.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// The same into `content`, whose memory serves one file after the other.
absl::Status ReadFileInto(const std::string& path, std::string& content);
// The first `bytes` bytes of a file, or all of a shorter one.
absl::StatusOr<std::string> ReadFileBegin(const std::string& path, std::size_t bytes);

// Replaces `path` by `content` durably: a crash leaves the old file or the new one, never a mix.
// `path`.tmp is used on the way.
absl::Status AtomicWriteFile(const std::string& path, std::string_view content);

// Gives the file or directory `from` the name `to`, in place of the file or the empty directory
// that has it, durably.
absl::Status RenameDurably(const std::string& from, const std::string& to);

// Removes `path`, where it exists. A large file that has no other name is cut down a piece after
// the other: a file system that frees all of its blocks at once keeps syncs of all other files
// waiting. Whoever still has it open finds it empty.
absl::Status RemoveFile(const std::string& path);

// Makes created, renamed and removed names in `directory` durable.
absl::Status SyncDirectory(const std::string& directory);

// The sizes of all files directly in `directory`; one that is
// deleted meanwhile counts as 0 bytes.
std::uintmax_t BytesOfFiles(const std::string& directory);

// Creates `directory` and its parents where they are missing.
absl::Status MakeDirectories(const std::string& directory);

}  // namespace embla
