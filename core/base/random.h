// Random numbers from the system, for ids that must never meet again: clusters, processes.
#pragma once

#include <cstdint>
#include <string>

namespace embla {

// Not 0.
std::uint64_t RandomId64();

// 128 bits as 32 hexadecimal digits.
std::string RandomHexId();

}  // namespace embla
