#include "server/log/log_storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/failpoint.h"
#include "core/base/file_descriptor.h"
#include "core/base/log.h"
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

// Says what to do when a disk does not give back what it has.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat(status.message(),
                   "; look at the disk and start again: if the file cannot be read then, "
                   "restore the directory from a copy (docs/runbook.md)"));
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

// Hands out what a source gives, in pieces of any size.
class Cursor {
 public:
  explicit Cursor(LogFile::Source source) : source_(source) {}

  // The next bytes, at most `bytes`; empty: that is 0, or there are none.
  std::string_view Next(std::size_t bytes) {
    while (piece_.empty()) {
      if (pieces_.empty()) pieces_ = source_();
      if (pieces_.empty()) return {};
      piece_ = pieces_.front();
      pieces_ = pieces_.subspan(1);
    }
    const std::string_view next = piece_.substr(0, bytes);
    piece_.remove_prefix(next.size());
    return next;
  }
  // The next `bytes` bytes, or what there is of them.
  std::vector<std::string_view> Take(std::size_t bytes) {
    std::vector<std::string_view> pieces;
    while (bytes > 0) {
      const std::string_view next = Next(bytes);
      if (next.empty()) break;
      pieces.push_back(next);
      bytes -= next.size();
    }
    return pieces;
  }

 private:
  const LogFile::Source source_;
  std::span<const std::string_view> pieces_;
  std::string_view piece_;
};

}  // namespace

absl::Status LogFile::Append(std::span<const std::string_view> pieces) {
  std::size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  return Append(bytes, [&pieces] { return std::exchange(pieces, {}); });
}

// Descriptors of one file: a sync runs beside a write, and large writes have one of their own.
class DirectoryLogStorage::File final : public LogFile {
 public:
  // `direct`, opened with O_DIRECT, is for large appends; not open: they go through the cache.
  File(DirectoryLogStorage& storage, AppendFile written, AppendFile synced, FileDescriptor direct)
      : storage_(storage),
        written_(std::move(written)),
        synced_(std::move(synced)),
        direct_(std::move(direct)) {}

  absl::Status Append(std::size_t bytes, Source next) override {
    Cursor cursor(next);
    is_direct_ = direct_.is_open() && bytes >= storage_.options_.large_bytes;
    if (!is_direct_) return written_.Append(cursor.Take(bytes));
    const std::size_t unit = DirectWriter::unit();
    const std::size_t begin = (unit - size() % unit) % unit;
    const std::size_t pages = (bytes - begin) / unit * unit;
    EMBLA_RETURN_IF_ERROR(written_.Append(cursor.Take(begin)));
    EMBLA_RETURN_IF_ERROR(AppendPages(pages, cursor));
    return written_.Append(cursor.Take(bytes - begin - pages));
  }
  // Nothing is left to begin with after a large append but parts of pages, which others follow.
  void BeginSync() override {
    if (!is_direct_) written_.BeginSync();
  }
  absl::Status Sync() override { return synced_.Sync(); }
  absl::Status Truncate(std::uint64_t size) override { return written_.Truncate(size); }
  std::uint64_t size() const override { return written_.size(); }

 private:
  absl::Status AppendPages(std::size_t bytes, Cursor& cursor) {
    const absl::Status injected = Failpoint("log.direct");
    if (!injected.ok()) bytes = bytes / 2 / DirectWriter::unit() * DirectWriter::unit();
    std::size_t left = bytes;
    const int error = storage_.writer_.Write(direct_.number(), size(), [&] {
      const std::string_view next = cursor.Next(left);
      left -= next.size();
      return next;
    });
    if (error != 0) return StorageError("write", written_.path(), error);
    written_.CountAppended(bytes);
    return injected;
  }

  DirectoryLogStorage& storage_;  // Not owned; outlives this object.
  AppendFile written_;
  AppendFile synced_;
  const FileDescriptor direct_;
  bool is_direct_ = false;  // The last Append was.
};

absl::StatusOr<std::string> LogStorage::Read(const std::string& name) const {
  std::string content;
  EMBLA_RETURN_IF_ERROR(ReadInto(name, content));
  return content;
}

absl::StatusOr<std::unique_ptr<DirectoryLogStorage>> DirectoryLogStorage::Open(
    const std::string& directory, const Options& options) {
  EMBLA_CHECK(options.large_bytes >= 2 * DirectWriter::unit());
  EMBLA_RETURN_IF_ERROR(MakeDirectories(directory));
  EMBLA_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(directory + "/LOCK"));
  return std::unique_ptr<DirectoryLogStorage>(
      new DirectoryLogStorage(directory, std::move(lock), options));
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
  return WithAdvice(ReadFileInto(PathOf(name), content));
}

absl::StatusOr<std::string> DirectoryLogStorage::ReadBegin(const std::string& name,
                                                           std::size_t bytes) const {
  absl::StatusOr<std::string> content = ReadFileBegin(PathOf(name), bytes);
  if (!content.ok()) return WithAdvice(content.status());
  return content;
}

absl::StatusOr<std::unique_ptr<LogFile>> DirectoryLogStorage::Open(const std::string& name,
                                                                   std::uint64_t reserved_bytes) {
  EMBLA_ASSIGN_OR_RETURN(AppendFile written, AppendFile::Open(PathOf(name)));
  EMBLA_ASSIGN_OR_RETURN(AppendFile synced, AppendFile::Open(PathOf(name)));
  EMBLA_RETURN_IF_ERROR(Reserve(PathOf(name), reserved_bytes));
  // Not later: the file may have another name then.
  FileDescriptor direct;
  if (writes_directly_) {
    direct = FileDescriptor(::open(PathOf(name).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  }
  return std::make_unique<File>(*this, std::move(written), std::move(synced), std::move(direct));
}

absl::Status DirectoryLogStorage::Rename(const std::string& from, const std::string& to) {
  EMBLA_RETURN_IF_ERROR(Failpoint("log.rename"));
  if (std::rename(PathOf(from).c_str(), PathOf(to).c_str()) == 0) return absl::OkStatus();
  return StorageError("rename", PathOf(from), errno);
}

absl::Status DirectoryLogStorage::Remove(const std::string& name) {
  EMBLA_RETURN_IF_ERROR(Failpoint("log.remove"));
  return RemoveFile(PathOf(name));
}

absl::Status DirectoryLogStorage::SyncDirectory() { return embla::SyncDirectory(path_); }

}  // namespace embla
