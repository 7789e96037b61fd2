#include "core/base/planted_damage.h"

namespace embla {

bool PlantedDamage(std::string_view) { return false; }

}  // namespace embla
