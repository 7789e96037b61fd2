// EMBLA_CHECK: for our own bugs only. Errors that a peer, a disk or a user can cause are an
// absl::Status.
#pragma once

namespace embla::detail {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace embla::detail

#define EMBLA_CHECK(condition) \
  ((condition) ? void() : ::embla::detail::CheckFailed(__FILE__, __LINE__, #condition))
