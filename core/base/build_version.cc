#include "core/base/build_version.h"

namespace embla {

std::string_view BuildVersion() { return EMBLA_VERSION "+" EMBLA_COMMIT; }

}  // namespace embla
