#include "server/migration/record_fold.h"

#include <algorithm>

#include "core/base/check.h"

namespace embla {

bool RecordFold::Admit(PlanVersion routed_since, PlanVersion installed) {
  const bool is_ahead = ToInt(routed_since) > ToInt(installed) + kPlansAheadMax;
  if ((is_ahead || routed_since < plan_) && guards_.stale_cancels) Cancel();
  const bool is_stale = folded_ != PlanVersion{} && (is_ahead || routed_since < folded_);
  if (!is_stale || !guards_.stale_takes_apart) return true;
  asks_apart_ = true;
  return false;
}

void RecordFold::Cancel() {
  plan_ = PlanVersion{};
  noted_.clear();
  units_.clear();
  is_ready_ = false;
}

void RecordFold::Begin(PlanVersion plan, const UnitWindows& rest) {
  EMBLA_CHECK(plan != PlanVersion{});
  Cancel();
  plan_ = plan;
  Note(rest);
}

void RecordFold::Note(const UnitId& unit, const UnitWindows& windows) {
  EMBLA_CHECK(is_waiting());
  if (!units_.insert(unit).second) return;
  Note(windows);
  is_ready_ = false;
}

// Updates below a floor are over.
void RecordFold::Note(const UnitWindows& windows) {
  for (const SessionWindow& window : windows.sessions()) {
    const UpdateSeq highest = window.Highest();
    if (highest < window.floor) continue;
    UpdateSeq& noted = noted_[window.session];
    noted = std::max(noted, highest);
  }
}

void RecordFold::Look(const IsOver& is_over) {
  if (!is_waiting()) return;
  std::erase_if(noted_, [&](const auto& entry) { return is_over(entry.first, entry.second); });
  is_ready_ = noted_.empty() || !guards_.noted_is_over;
}

void RecordFold::Join(const UnitId& unit) {
  EMBLA_CHECK(MayJoin(unit));
  units_.erase(unit);
  folded_ = std::max(folded_, plan_);
  if (units_.empty()) Cancel();
}

void RecordFold::Restore(PlanVersion folded) { folded_ = std::max(folded_, folded); }

void RecordFold::TakenApart() {
  folded_ = PlanVersion{};
  asks_apart_ = false;
}

}  // namespace embla
