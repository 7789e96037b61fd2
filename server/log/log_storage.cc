#include "server/log/log_storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

absl::Status StorageError(std::string_view verb, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return absl::Status(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                      absl::StrCat("cannot ", ToAbsl(verb), " ", path, ": ",
                                   std::error_code(error, std::generic_category()).message()));
}

// Takes room for the first `bytes` of `path` without changing its size. A file system that cannot
// do this (ENOTSUP) finds out at the write that it is full, which the log survives too.
absl::Status Reserve(const std::string& path, std::uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(Failpoint("log.reserve"));
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return StorageError("open", path, errno);
  int error = 0;
  do {
    const int result = ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
    error = result == 0 ? 0 : errno;
  } while (error == EINTR);
  ::close(descriptor);
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return absl::OkStatus();
  return StorageError("reserve room for", path, error);
}

// Two descriptors of one file, so that a sync runs beside a write.
class DirectoryLogFile final : public LogFile {
 public:
  DirectoryLogFile(AppendFile written, AppendFile synced)
      : written_(std::move(written)), synced_(std::move(synced)) {}

  absl::Status Append(std::span<const std::string_view> pieces) override {
    return written_.Append(pieces);
  }
  void BeginSync() override { written_.BeginSync(); }
  absl::Status Sync() override { return synced_.Sync(); }
  absl::Status Truncate(std::uint64_t size) override { return written_.Truncate(size); }
  std::uint64_t size() const override { return written_.size(); }

 private:
  AppendFile written_;
  AppendFile synced_;
};

}  // namespace

absl::StatusOr<std::string> LogStorage::Read(const std::string& name) const {
  std::string content;
  EMBLA_RETURN_IF_ERROR(ReadInto(name, content));
  return content;
}

absl::StatusOr<std::unique_ptr<DirectoryLogStorage>> DirectoryLogStorage::Open(
    const std::string& directory) {
  EMBLA_RETURN_IF_ERROR(MakeDirectories(directory));
  EMBLA_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(directory + "/LOCK"));
  return std::unique_ptr<DirectoryLogStorage>(new DirectoryLogStorage(directory, std::move(lock)));
}

absl::StatusOr<std::vector<std::string>> DirectoryLogStorage::List() const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return StorageError("list", path_, error.value());
  return names;
}

absl::Status DirectoryLogStorage::ReadInto(const std::string& name, std::string& content) const {
  return ReadFileInto(PathOf(name), content);
}

absl::StatusOr<std::unique_ptr<LogFile>> DirectoryLogStorage::Open(const std::string& name,
                                                                   std::uint64_t reserved_bytes) {
  EMBLA_ASSIGN_OR_RETURN(AppendFile written, AppendFile::Open(PathOf(name)));
  EMBLA_ASSIGN_OR_RETURN(AppendFile synced, AppendFile::Open(PathOf(name)));
  EMBLA_RETURN_IF_ERROR(Reserve(PathOf(name), reserved_bytes));
  return std::make_unique<DirectoryLogFile>(std::move(written), std::move(synced));
}

absl::Status DirectoryLogStorage::Rename(const std::string& from, const std::string& to) {
  EMBLA_RETURN_IF_ERROR(Failpoint("log.rename"));
  if (std::rename(PathOf(from).c_str(), PathOf(to).c_str()) == 0) return absl::OkStatus();
  return StorageError("rename", PathOf(from), errno);
}

absl::Status DirectoryLogStorage::Remove(const std::string& name) {
  EMBLA_RETURN_IF_ERROR(Failpoint("log.remove"));
  if (::unlink(PathOf(name).c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return StorageError("remove", PathOf(name), errno);
}

absl::Status DirectoryLogStorage::SyncDirectory() { return embla::SyncDirectory(path_); }

}  // namespace embla
