// The border between Debian's absl::string_view, which is its own type there, and std::string_view.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace embla {

inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

// The message of `status`, as a std type.
inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

// `status` with "<context>: " in front of its message. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace embla
