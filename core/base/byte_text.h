// Numbers of bytes, for people.
#pragma once

#include <cstdint>
#include <string>

namespace embla {

// With three significant digits and a binary unit: "0 B", "24.2 GiB".
std::string FormatBytes(std::int64_t bytes);

}  // namespace embla
