#include "core/base/random.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace embla {

std::uint64_t RandomId64() {
  std::random_device device;
  std::uint64_t value = 0;
  while (value == 0) value = (std::uint64_t{device()} << 32) | device();
  return value;
}

std::string RandomHexId() {
  return absl::StrCat(absl::Hex(RandomId64(), absl::kZeroPad16),
                      absl::Hex(RandomId64(), absl::kZeroPad16));
}

}  // namespace embla
