#include "bench/warm_up.h"

#include <filesystem>
#include <fstream>

namespace embla {

void WarmUp(const std::string& directory) {
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    std::ifstream in(file.path());
    std::ofstream("/dev/null") << in.rdbuf();
  }
}

}  // namespace embla
