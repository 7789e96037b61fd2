#include "core/base/testing/used_memory.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace embla::testing {

std::size_t UsedBytes(pid_t process) {
  std::ifstream rollup(absl::StrCat("/proc/", process, "/smaps_rollup"));
  std::size_t anonymous = 0;
  std::size_t lazy = 0;
  for (std::string key; rollup >> key;) {
    if (key == "Anonymous:") rollup >> anonymous;
    if (key == "LazyFree:") rollup >> lazy;
  }
  return (anonymous - lazy) << 10;
}

}  // namespace embla::testing
