// absl::Status to exceptions of embla.errors.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace embla::python {

// Whether the outcome of a call that failed may be unknown. kRead: only where the status itself
// says so. kWrite: also after every Unavailable and DeadlineExceeded.
enum class CallKind : std::uint8_t { kRead, kWrite };

// Throws the Python exception of the status' code. Requires the GIL and a status that is not OK.
[[noreturn]] void Raise(const absl::Status& status, CallKind kind = CallKind::kRead);

// Raises unless `status` is OK. Requires the GIL.
inline void Check(const absl::Status& status, CallKind kind = CallKind::kRead) {
  if (!status.ok()) Raise(status, kind);
}

// Throws the exception class `name` of embla.errors. Requires the GIL.
[[noreturn]] void RaiseNamed(const char* name, const std::string& message);

}  // namespace embla::python
