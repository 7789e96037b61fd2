// Bytes of a file, decompressed while they are read: plain, gzip or zstd.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace embla::train {

// Thread safety: one thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills the front of `out` and returns how much; 0 only at the end.
  // DataLoss: the compressed stream is damaged or cut off.
  virtual absl::StatusOr<std::size_t> Read(std::span<char> out) = 0;
};

// The format is told by the first bytes, whatever the file is called. NotFound: no such file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);

}  // namespace embla::train
