// The page cache of benches that read files.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace embla {

// Has the page cache take the files of `directory`.
inline void WarmUp(const std::string& directory) {
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    std::ifstream in(file.path());
    std::ofstream("/dev/null") << in.rdbuf();
  }
}

}  // namespace embla
