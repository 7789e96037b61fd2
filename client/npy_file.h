// Matrices of fp32 as NumPy files (format version 1.0): little-endian, C order.
#pragma once

#include <cstdint>
#include <span>
#include <string>

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
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;
  ~NpyFile();

  absl::Status Append(std::span<const float> rows);
  // Makes the file durable under its name. Requires: every row was appended.
  absl::Status Finish();

 private:
  NpyFile(std::string path, AppendFile file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;  // Empty: finished, or moved from.
  AppendFile file_;
  std::uint64_t size_;  // When complete.
};

}  // namespace embla::client
