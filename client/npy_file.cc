#include "client/npy_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::client {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kGrowingHeaderBytes = 128;

// Magic, version, length of the description, the description padded so that data is 64-byte
// aligned, and at least to `bytes_min`.
std::string Header(const std::string& type, const std::string& shape, std::size_t bytes_min) {
  std::string description =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr std::size_t kPrefix = 10;
  const std::size_t needed = std::max(kPrefix + description.size() + 1, bytes_min);
  description.append((needed + 63) / 64 * 64 - kPrefix - description.size() - 1, ' ');
  description += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(description.size() & 0xff);
  header += static_cast<char>(description.size() >> 8);
  return header + description;
}

std::string MatrixShape(std::uint64_t rows, std::uint32_t columns) {
  return absl::StrCat(rows, ", ", columns);
}

std::string TemporaryPath(const std::string& path) { return path + ".tmp"; }

}  // namespace

absl::StatusOr<NpyFile> NpyFile::Create(const std::string& path, std::int64_t rows,
                                        std::uint32_t columns) {
  const std::string header =
      Header("<f4", MatrixShape(static_cast<std::uint64_t>(rows), columns), 0);
  return Open(path, header,
              header.size() + static_cast<std::uint64_t>(rows) * columns * sizeof(float));
}

absl::StatusOr<NpyFile> NpyFile::CreateGrowing(const std::string& path, std::uint32_t columns) {
  EMBLA_ASSIGN_OR_RETURN(
      NpyFile npy, Open(path, Header("<f4", MatrixShape(0, columns), kGrowingHeaderBytes), 0));
  npy.columns_ = columns;
  return npy;
}

absl::StatusOr<NpyFile> NpyFile::CreateGrowingList(const std::string& path) {
  return Open(path, Header("<i8", "0,", kGrowingHeaderBytes), 0);
}

absl::StatusOr<NpyFile> NpyFile::Open(const std::string& path, std::string_view header,
                                      std::uint64_t size) {
  EMBLA_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(TemporaryPath(path)));
  NpyFile npy(path, std::move(file), size);
  EMBLA_RETURN_IF_ERROR(npy.file_.Truncate(0));  // Left over from an export that was killed.
  EMBLA_RETURN_IF_ERROR(npy.file_.Append(header));
  return npy;
}

NpyFile::NpyFile(NpyFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(std::move(other.file_)),
      size_(other.size_),
      columns_(other.columns_) {}

NpyFile::~NpyFile() {
  if (!path_.empty()) unlink(TemporaryPath(path_).c_str());
}

absl::Status NpyFile::Append(std::span<const float> rows) {
  const auto bytes = std::as_bytes(rows);
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status NpyFile::Append(std::span<const std::int64_t> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status NpyFile::PatchHeader() {
  const std::uint64_t bytes = file_.size() - kGrowingHeaderBytes;
  const std::string header =
      columns_ == 0
          ? Header("<i8", absl::StrCat(bytes / sizeof(std::int64_t), ","), kGrowingHeaderBytes)
          : Header("<f4", MatrixShape(bytes / sizeof(float) / columns_, columns_),
                   kGrowingHeaderBytes);
  EMBLA_CHECK(header.size() == kGrowingHeaderBytes);
  std::fstream file(TemporaryPath(path_), std::ios::in | std::ios::out | std::ios::binary);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write the header of ", path_));
}

absl::Status NpyFile::Finish() {
  if (size_ == 0) {
    EMBLA_RETURN_IF_ERROR(PatchHeader());
  } else {
    EMBLA_CHECK(file_.size() == size_);
  }
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
