#include "server/state_store/state_map.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/ids.h"
#include "core/base/text.h"

namespace embla {

StateMap::StateMap(Revision revision, std::vector<StateEntry> entries) : revision_(revision) {
  for (StateEntry& entry : entries) {
    items_.insert_or_assign(std::move(entry.key), Item{std::move(entry.value), entry.revision});
  }
}

absl::StatusOr<StateEntry> StateMap::Get(std::string_view key) const {
  const auto it = items_.find(key);
  if (it != items_.end()) return StateEntry{it->first, it->second.value, it->second.revision};
  return absl::NotFoundError(absl::StrCat("no state key ", ToAbsl(key)));
}

std::vector<StateEntry> StateMap::List(std::string_view prefix) const {
  std::vector<StateEntry> entries;
  for (auto it = items_.lower_bound(prefix);
       it != items_.end() && std::string_view(it->first).starts_with(prefix); ++it) {
    entries.push_back({it->first, it->second.value, it->second.revision});
  }
  return entries;
}

absl::Status StateMap::Check(std::span<const StateCompare> compares) const {
  for (const StateCompare& compare : compares) {
    const auto it = items_.find(compare.key);
    const Revision found = it == items_.end() ? kAbsent : it->second.revision;
    if (found == compare.revision) continue;
    return absl::AbortedError(absl::StrCat("state key ", compare.key, " is at revision ",
                                           ToInt(found), ", expected ", ToInt(compare.revision)));
  }
  return absl::OkStatus();
}

std::vector<StateEvent> StateMap::Apply(std::span<const StateWrite> writes) {
  revision_ = next_revision();
  std::vector<StateEvent> events;
  for (const StateWrite& write : writes) {
    if (write.value) {
      items_.insert_or_assign(write.key, Item{*write.value, revision_});
    } else if (items_.erase(write.key) == 0) {
      continue;  // The key did not exist: nothing changed.
    }
    events.push_back({write.key, write.value, revision_});
  }
  return events;
}

}  // namespace embla
