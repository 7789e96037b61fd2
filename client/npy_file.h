// NumPy files (format version 1.0) of fp32 matrices and of int64 lists: little-endian, C order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace embla::client {

// Writes one file row by row. Nothing is at `path` until Finish, and nothing is left when this
// object is destroyed before: the rows go to `path`.tmp.
class NpyFile {
 public:
  // Errors: those of core/base/file.h.
  static absl::StatusOr<NpyFile> Create(const std::string& path, std::int64_t rows,
                                        std::uint32_t columns);
  // Files whose number of rows is known when all are appended. The same errors.
  static absl::StatusOr<NpyFile> CreateGrowing(const std::string& path, std::uint32_t columns);
  static absl::StatusOr<NpyFile> CreateGrowingList(const std::string& path);
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;
  ~NpyFile();

  absl::Status Append(std::span<const float> rows);
  absl::Status Append(std::span<const std::int64_t> numbers);
  // Makes the file durable under its name. Requires: every row was appended.
  absl::Status Finish();

 private:
  NpyFile(std::string path, AppendFile file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}
  static absl::StatusOr<NpyFile> Open(const std::string& path, std::string_view header,
                                      std::uint64_t size);
  absl::Status PatchHeader();

  std::string path_;  // Empty: finished, or moved from.
  AppendFile file_;
  std::uint64_t size_;         // When complete; 0 for a growing file.
  std::uint32_t columns_ = 0;  // Columns of a growing file; 0: a list.
};

}  // namespace embla::client
