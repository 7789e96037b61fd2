// Places where a test of tests lets a server do what must never happen, as losing an update: the
// test then has to find it.
//
// The definition that a program is linked with decides: embla::base's says no, always; that of
// core/base/testing/planted_damage.cc asks the failpoint of the same name. Only the program
// embla-shard-damaged, which is never installed, has the second one.
#pragma once

#include <string_view>

namespace embla {

// Whether the damage `name` is to be done now.
bool PlantedDamage(std::string_view name);

}  // namespace embla
