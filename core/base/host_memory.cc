#include "core/base/host_memory.h"

#include <charconv>
#include <fstream>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace embla {
namespace {

// The first line; empty: there is no such file.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Kilobytes of the line "MemTotal:  24576 kB"; 0: there is none.
std::int64_t MemTotal(const std::string& path) {
  std::ifstream file(path);
  std::int64_t kilobytes = 0;
  for (std::string word; file >> word;) {
    if (word == "MemTotal:" && file >> kilobytes) return kilobytes;
  }
  return 0;
}

// Lowers `memory` to the limits of the control group `path` and of those above it.
void LimitTo(const std::string& mount, std::string_view path, const char* file,
             HostMemory& memory) {
  std::string group;
  while (true) {
    const std::string folder = absl::StrCat(mount, std::string(path));
    const std::string text = FirstLine(absl::StrCat(folder, "/", file));
    std::int64_t limit = 0;  // "max" is no number.
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (parsed.ec == std::errc() && limit > 0 && limit < memory.bytes) {
      memory.bytes = limit;
      group = absl::StrCat(":", folder);
    }
    if (path.empty()) break;
    path = path.substr(0, path.rfind('/'));
  }
  memory.id += group;
}

}  // namespace

HostMemory FindHostMemory(const std::string& root) {
  HostMemory memory{.id = FirstLine(absl::StrCat(root, "/proc/sys/kernel/random/boot_id")),
                    .bytes = MemTotal(absl::StrCat(root, "/proc/meminfo")) << 10};
  if (memory.bytes == 0) memory.bytes = std::numeric_limits<std::int64_t>::max();
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  // Lines such as "0::/system.slice/embla.service" (version 2) and "7:memory:/docker/5f" (1).
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::size_t controllers = line.find(':') + 1;
    const std::size_t colon = line.find(':', controllers);
    if (controllers == 0 || colon == std::string::npos) continue;
    const std::string_view which = std::string_view(line).substr(controllers, colon - controllers);
    std::string_view path = std::string_view(line).substr(colon + 1);
    if (path == "/") path = "";
    if (which.empty()) LimitTo(mount, path, "memory.max", memory);
    if (which == "memory") {
      LimitTo(mount + "/memory", path, "memory.limit_in_bytes", memory);
    }
  }
  return memory;
}

}  // namespace embla
