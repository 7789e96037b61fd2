#include "client/npy_file.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::client {
namespace {

static_assert(std::endian::native == std::endian::little);

// Magic, version, length of the description, the description padded so that data is 64-byte
// aligned.
std::string Header(std::int64_t rows, std::uint32_t columns) {
  std::string description = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                                         rows, ", ", columns, "), }");
  constexpr std::size_t kPrefix = 10;
  description.append(63 - (kPrefix + description.size()) % 64, ' ');
  description += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(description.size() & 0xff);
  header += static_cast<char>(description.size() >> 8);
  return header + description;
}

std::string TemporaryPath(const std::string& path) { return path + ".tmp"; }

}  // namespace

absl::StatusOr<NpyFile> NpyFile::Create(const std::string& path, std::int64_t rows,
                                        std::uint32_t columns) {
  EMBLA_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(TemporaryPath(path)));
  const std::string header = Header(rows, columns);
  const std::uint64_t size =
      header.size() + static_cast<std::uint64_t>(rows) * columns * sizeof(float);
  NpyFile npy(path, std::move(file), size);
  EMBLA_RETURN_IF_ERROR(npy.file_.Truncate(0));  // Of an export that was killed.
  EMBLA_RETURN_IF_ERROR(npy.file_.Append(header));
  return npy;
}

NpyFile::NpyFile(NpyFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), file_(std::move(other.file_)), size_(other.size_) {}

NpyFile::~NpyFile() {
  if (!path_.empty()) unlink(TemporaryPath(path_).c_str());
}

absl::Status NpyFile::Append(std::span<const float> rows) {
  const auto bytes = std::as_bytes(rows);
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status NpyFile::Finish() {
  EMBLA_CHECK(file_.size() == size_);
  EMBLA_RETURN_IF_ERROR(file_.Sync());
  if (std::rename(TemporaryPath(path_).c_str(), path_.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot rename to ", path_, ": ", std::strerror(errno)));
  }
  const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
  path_.clear();
  return SyncDirectory(directory.empty() ? "." : directory.string());
}

}  // namespace embla::client
