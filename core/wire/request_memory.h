// The large fields of one received request, one after the other in one aligned buffer.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/buffer.h"
#include "core/base/check.h"

namespace embla::wire {

class RequestMemory {
 public:
  static constexpr int kFieldNumberMax = 15;

  // Holds all large fields of a message of this size.
  RequestMemory(BufferPool& pool, std::size_t message_bytes)
      : buffer_(pool.Take(message_bytes + kOccurrencesMax * kBufferAlignment)) {}

  // A PlaceField: a field that occurs again takes the place of the earlier one.
  absl::StatusOr<std::byte*> Place(int number, std::size_t size) {
    EMBLA_CHECK(number > 0 && number <= kFieldNumberMax);
    if (++occurrences_ > kOccurrencesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload fields occur more than ", kOccurrencesMax, " times"));
    }
    const std::size_t begin = used_;
    used_ += (size + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    EMBLA_CHECK(used_ <= buffer_.size());
    fields_[static_cast<std::size_t>(number)] = {buffer_.data() + begin, size};
    return buffer_.data() + begin;
  }

  // Empty when the field did not occur.
  std::span<const std::byte> Field(int number) const {
    return fields_[static_cast<std::size_t>(number)];
  }

  // The memory itself; spans of fields stay valid while it lives.
  Buffer Release() && { return std::move(buffer_); }

 private:
  static constexpr std::size_t kOccurrencesMax = 32;

  Buffer buffer_;
  std::size_t used_ = 0;
  std::size_t occurrences_ = 0;
  std::array<std::span<const std::byte>, kFieldNumberMax + 1> fields_;
};

}  // namespace embla::wire
