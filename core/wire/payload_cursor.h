// One payload array of a request, handed out to the parts from the front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/wire/request_memory.h"

namespace embla::wire {

inline absl::Status PartError(std::size_t part, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("part ", part, ": ", what));
}

template <typename T>
class PayloadCursor {
 public:
  // InvalidArgument when field `number` does not hold whole entries. `name` outlives the cursor.
  static absl::StatusOr<PayloadCursor> Over(const RequestMemory& memory, int number,
                                            const char* name) {
    const std::span<const std::byte> bytes = memory.Field(number);
    if (bytes.size() % sizeof(T) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", name, "` has ", bytes.size(), " bytes, not a multiple of ", sizeof(T)));
    }
    return PayloadCursor(name,
                         {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)});
  }

  absl::StatusOr<std::span<const T>> Take(std::size_t part, std::uint64_t count) {
    if (count > rest_.size()) {
      return PartError(part, absl::StrCat("needs ", count, " entries of `", name_,
                                          "`, the request has ", rest_.size(), " left"));
    }
    const std::span<const T> taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  absl::Status CheckEmpty() const {
    if (rest_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("`", name_, "` has ", rest_.size(), " entries that belong to no part"));
  }

 private:
  PayloadCursor(const char* name, std::span<const T> rest) : name_(name), rest_(rest) {}

  const char* name_;
  std::span<const T> rest_;
};

}  // namespace embla::wire
