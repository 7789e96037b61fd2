#include "core/base/testing/temp_directory.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/base/check.h"

namespace embla::testing {

TempDirectory::TempDirectory() {
  const bool has_memory = ::access("/dev/shm", W_OK) == 0;
  const std::filesystem::path parent =
      has_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
  path_ = parent / "embla_XXXXXX";
  EMBLA_CHECK(::mkdtemp(path_.data()) != nullptr);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace embla::testing
