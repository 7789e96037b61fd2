#include "server/app/port_file.h"

#include <nlohmann/json.hpp>

#include "core/base/file.h"

namespace embla {

absl::Status WritePortFile(const std::string& path,
                           const std::map<std::string, std::string>& addresses) {
  return AtomicWriteFile(path, nlohmann::json(addresses).dump() + "\n");
}

}  // namespace embla
