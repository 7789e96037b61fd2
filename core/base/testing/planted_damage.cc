#include "core/base/planted_damage.h"

#include "core/base/failpoint.h"

namespace embla {

bool PlantedDamage(std::string_view name) { return !Failpoint(name).ok(); }

}  // namespace embla
