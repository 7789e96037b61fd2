#include "core/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/file_descriptor.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status FileError(std::string_view verb, const std::string& path, int error) {
  return absl::Status(CodeOf(error),
                      absl::StrCat("cannot ", ToAbsl(verb), " ", path, ": ",
                                   std::error_code(error, std::generic_category()).message()));
}

// Runs a system call again while signals interrupt it.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int OpenDescriptor(const std::string& path, int flags) {
  constexpr mode_t kOwnerOnly = 0600;
  return Retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, kOwnerOnly); });
}

void CloseDescriptor(int descriptor) {
  if (descriptor >= 0) ::close(descriptor);
}

absl::Status SyncDescriptor(int descriptor, const std::string& path) {
  if (Retry([&] { return ::fsync(descriptor); }) == 0) return absl::OkStatus();
  return FileError("sync", path, errno);
}

// Drops the first `bytes` of `pieces`, which are written.
void DropBegin(std::size_t bytes, std::span<iovec>* pieces) {
  while (bytes > 0) {
    iovec& first = pieces->front();
    if (bytes < first.iov_len) {
      first.iov_base = static_cast<char*>(first.iov_base) + bytes;
      first.iov_len -= bytes;
      return;
    }
    bytes -= first.iov_len;
    *pieces = pieces->subspan(1);
  }
}

// Files that are read past the page cache, how much of one at a time, and by how many threads: two
// keep the disk at work while the others copy.
constexpr std::size_t kLargeFileBytes = std::size_t{4} << 20;
constexpr std::size_t kDirectReaders = 4;
constexpr std::size_t kDirectReadBytes = std::size_t{1} << 20;
constexpr std::size_t kDirectAlignment = 4096;

// Whether the cache has each page of the first `bytes` of a file; empty: that is not known.
std::vector<unsigned char> CachedPages(int descriptor, std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return {};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> cached((bytes + page - 1) / page);
  if (::mincore(mapped, bytes, cached.data()) != 0) cached.clear();
  ::munmap(mapped, bytes);
  return cached;
}

bool IsCached(std::span<const unsigned char> pages, std::size_t begin, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (pages.empty()) return false;
  const auto run = pages.subspan(begin / page, (bytes + page - 1) / page);
  return std::ranges::all_of(run, [](unsigned char is) { return (is & 1) != 0; });
}

// Reads one piece in kDirectReaders, from the piece `first` on, of the file that `descriptor` is
// of: from the cache, or past it by `direct`. False: not all of it.
bool ReadPieces(int descriptor, int direct, std::span<const unsigned char> cached,
                std::size_t first, std::span<char> content) {
  const std::unique_ptr<char, decltype(&std::free)> aligned(
      static_cast<char*>(std::aligned_alloc(kDirectAlignment, kDirectReadBytes)), &std::free);
  if (aligned == nullptr) return false;
  for (std::size_t at = first * kDirectReadBytes; at < content.size();
       at += kDirectReaders * kDirectReadBytes) {
    const std::span<char> piece =
        content.subspan(at, std::min(kDirectReadBytes, content.size() - at));
    const auto offset = static_cast<off_t>(at);
    const bool is_cached = IsCached(cached, at, piece.size());
    const ssize_t got = Retry([&] {
      return is_cached ? ::pread(descriptor, piece.data(), piece.size(), offset)
                       : ::pread(direct, aligned.get(), kDirectReadBytes, offset);
    });
    if (got < static_cast<ssize_t>(piece.size())) return false;
    if (!is_cached) std::copy_n(aligned.get(), piece.size(), piece.data());
  }
  return true;
}

// Reads all of the file. False: that cannot be done; anything may be in `content`.
bool ReadPastCache(int descriptor, const std::string& path, std::span<char> content) {
  const FileDescriptor direct(OpenDescriptor(path, O_RDONLY | O_DIRECT));
  if (!direct.is_open()) return false;
  const std::vector<unsigned char> cached = CachedPages(descriptor, content.size());
  const auto read = [&](std::size_t first) {
    return ReadPieces(descriptor, direct.number(), cached, first, content);
  };
  std::array<std::future<bool>, kDirectReaders - 1> others;
  for (std::size_t i = 0; i < others.size(); ++i) {
    others[i] = std::async(std::launch::async, read, i + 1);
  }
  bool is_read = read(0);
  for (std::future<bool>& other : others) is_read = other.get() && is_read;
  return is_read;
}

std::string DirectoryOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

AppendFile::AppendFile(AppendFile&& other) noexcept { *this = std::move(other); }

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  if (this == &other) return *this;
  CloseDescriptor(descriptor_);
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  size_ = std::exchange(other.size_, 0);
  begun_bytes_ = std::exchange(other.begun_bytes_, 0);
  return *this;
}

AppendFile::~AppendFile() { CloseDescriptor(descriptor_); }

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  EMBLA_RETURN_IF_ERROR(Failpoint("file.open"));
  AppendFile file;
  file.path_ = path;
  file.descriptor_ = OpenDescriptor(path, O_RDWR | O_CREAT | O_APPEND);
  if (file.descriptor_ < 0) return FileError("open", path, errno);
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) return FileError("examine", path, errno);
  if (!S_ISREG(status.st_mode)) return FileError("append to", path, EINVAL);
  file.size_ = file.begun_bytes_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

absl::Status AppendFile::Append(std::span<const std::string_view> pieces) {
  std::vector<iovec> left;
  std::size_t bytes = 0;
  left.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    if (piece.empty()) continue;
    left.push_back({const_cast<char*>(piece.data()), piece.size()});
    bytes += piece.size();
  }
  const absl::Status injected = Failpoint("file.write");
  if (!injected.ok()) bytes /= 2;
  for (std::span<iovec> next = left; bytes > 0;) {
    // A failpoint may cut the last piece.
    std::size_t count = 0;
    for (std::size_t room = bytes; count < std::min<std::size_t>(next.size(), IOV_MAX) && room > 0;
         ++count) {
      next[count].iov_len = std::min(next[count].iov_len, room);
      room -= next[count].iov_len;
    }
    const ssize_t written =
        Retry([&] { return ::writev(descriptor_, next.data(), static_cast<int>(count)); });
    if (written < 0) return FileError("write", path_, errno);
    size_ += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
    DropBegin(static_cast<std::size_t>(written), &next);
  }
  return injected;
}

void AppendFile::BeginSync() {
  static_cast<void>(::sync_file_range(descriptor_, static_cast<off_t>(begun_bytes_),
                                      static_cast<off_t>(size_ - begun_bytes_),
                                      SYNC_FILE_RANGE_WRITE));
  begun_bytes_ = size_;
}

absl::Status AppendFile::Sync() {
  EMBLA_RETURN_IF_ERROR(Failpoint("file.sync"));
  return SyncDescriptor(descriptor_, path_);
}

absl::Status AppendFile::Truncate(std::uint64_t size) {
  EMBLA_RETURN_IF_ERROR(Failpoint("file.truncate"));
  if (Retry([&] { return ::ftruncate(descriptor_, static_cast<off_t>(size)); }) != 0) {
    return FileError("truncate", path_, errno);
  }
  size_ = size;
  begun_bytes_ = std::min(begun_bytes_, size);
  return absl::OkStatus();
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileLock::~FileLock() { CloseDescriptor(descriptor_); }

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  FileLock lock;
  lock.descriptor_ = OpenDescriptor(path, O_RDWR | O_CREAT);
  if (lock.descriptor_ < 0) return FileError("open", path, errno);
  if (Retry([&] { return ::flock(lock.descriptor_, LOCK_EX | LOCK_NB); }) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is locked: another process uses this directory"));
}

absl::Status CheckWritable(const std::string& path) {
  struct stat info = {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return FileError("write", path, EISDIR);
  // AtomicWriteFile puts a new file into the directory, also in place of an old one.
  if (exists && ::access(path.c_str(), W_OK) != 0) return FileError("write", path, errno);
  if (::access(DirectoryOf(path).c_str(), W_OK | X_OK) != 0) return FileError("write", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<std::string> PlaceOfFile(const std::string& path) {
  struct statx info = {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &info) != 0) {
    return FileError("look at", path, errno);
  }
  if ((info.stx_mask & STATX_BTIME) == 0) {
    return absl::StrCat(info.stx_ino, " on ", info.stx_dev_major, ":", info.stx_dev_minor);
  }
  return absl::StrCat(info.stx_ino, " of ", info.stx_btime.tv_sec, ".",
                      absl::Dec(info.stx_btime.tv_nsec, absl::kZeroPad9));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::string content;
  EMBLA_RETURN_IF_ERROR(ReadFileInto(path, content));
  return content;
}

absl::Status ReadFileInto(const std::string& path, std::string& content) {
  if (!Failpoint("file.read").ok()) return FileError("read", path, EIO);
  const int descriptor = OpenDescriptor(path, O_RDONLY);
  if (descriptor < 0) return FileError("open", path, errno);
  struct stat info = {};
  const bool has_size = ::fstat(descriptor, &info) == 0 && info.st_size > 0;
  if (has_size && static_cast<std::size_t>(info.st_size) >= kLargeFileBytes) {
    content.resize(static_cast<std::size_t>(info.st_size));
    if (ReadPastCache(descriptor, path, content)) {
      CloseDescriptor(descriptor);
      return absl::OkStatus();
    }
  }
  // A byte more than there is shows the end; files without a size, as in /proc, take more turns.
  content.resize(has_size ? static_cast<std::size_t>(info.st_size) + 1 : std::size_t{4096});
  std::size_t size = 0;
  ssize_t got = 0;
  do {
    if (size == content.size()) content.resize(2 * size);
    got = Retry([&] { return ::read(descriptor, &content[size], content.size() - size); });
    size += static_cast<std::size_t>(got > 0 ? got : 0);
  } while (got > 0);
  const int error = errno;
  CloseDescriptor(descriptor);
  content.resize(size);
  return got < 0 ? FileError("read", path, error) : absl::OkStatus();
}

absl::StatusOr<std::string> ReadFileBegin(const std::string& path, std::size_t bytes) {
  if (!Failpoint("file.read").ok()) return FileError("read", path, EIO);
  const FileDescriptor file(OpenDescriptor(path, O_RDONLY));
  if (!file.is_open()) return FileError("open", path, errno);
  std::string content(bytes, '\0');
  std::size_t size = 0;
  ssize_t got = 0;
  do {
    got = Retry([&] { return ::read(file.number(), &content[size], bytes - size); });
    size += static_cast<std::size_t>(got > 0 ? got : 0);
  } while (got > 0 && size < bytes);
  if (got < 0) return FileError("read", path, errno);
  content.resize(size);
  return content;
}

absl::Status AtomicWriteFile(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  EMBLA_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(temporary));
  EMBLA_RETURN_IF_ERROR(file.Truncate(0));
  EMBLA_RETURN_IF_ERROR(file.Append(content));
  EMBLA_RETURN_IF_ERROR(file.Sync());
  return RenameDurably(temporary, path);
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  EMBLA_RETURN_IF_ERROR(Failpoint("file.rename"));
  if (std::rename(from.c_str(), to.c_str()) != 0) return FileError("rename", from, errno);
  return SyncDirectory(DirectoryOf(to));
}

absl::Status RemoveFile(const std::string& path) {
  // ext4 frees so much in two milliseconds; each piece may have to wait for a sync.
  constexpr off_t kPieceBytes = off_t{8} << 20;
  // Opened first: the file's name is gone before its bytes are. Without, it goes as a whole.
  const int descriptor = OpenDescriptor(path, O_WRONLY | O_NONBLOCK);
  const int error = ::unlink(path.c_str()) == 0 ? 0 : errno;
  struct stat stat {};
  if (descriptor >= 0 && error == 0 && ::fstat(descriptor, &stat) == 0 && stat.st_nlink == 0) {
    off_t left = stat.st_size;
    while (left > 0) {
      left = std::max<off_t>(left - kPieceBytes, 0);
      if (::ftruncate(descriptor, left) != 0) break;  // The rest goes with the descriptor.
    }
  }
  CloseDescriptor(descriptor);
  return error == 0 || error == ENOENT ? absl::OkStatus() : FileError("remove", path, error);
}

absl::Status SyncDirectory(const std::string& directory) {
  EMBLA_RETURN_IF_ERROR(Failpoint("file.dir_sync"));
  const int descriptor = OpenDescriptor(directory, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return FileError("open", directory, errno);
  const absl::Status status = SyncDescriptor(descriptor, directory);
  CloseDescriptor(descriptor);
  return status;
}

absl::Status MakeDirectories(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError("create", directory, error.value());
  return absl::OkStatus();
}

std::uintmax_t BytesOfFiles(const std::string& directory) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const std::uintmax_t size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace embla
