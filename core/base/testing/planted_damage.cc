#include "core/base/planted_damage.h"

#include <functional>
#include <map>
#include <string>

#include "core/base/failpoint.h"
#include "core/base/mutex.h"

namespace embla {
namespace {

// One alone may change nothing: a server's part of an update that has only zeros for its columns,
// or one to a copy that is being made, which its rows mend.
constexpr int kInARow = 10;

}  // namespace

// From the hit that the failpoint waits for on, so many in a row.
bool PlantedDamage(std::string_view name) {
  static Mutex mu;
  static std::map<std::string, int, std::less<>> left;
  const bool begins = !Failpoint(name).ok();
  const MutexLock lock(mu);
  const auto it =
      begins ? left.insert_or_assign(std::string(name), kInARow).first : left.find(name);
  if (it == left.end() || it->second == 0) return false;
  --it->second;
  return true;
}

}  // namespace embla
