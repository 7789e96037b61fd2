// The moment at which an image of the node may be taken while its units move: what the log says of
// each unit is what is here.
//
// A step changes a unit's state first; its record, and then the rows, follow. So there is no such
// moment between a step and its last record, nor between a record and the rows that it has moved.
// Copying a unit takes long, and needs no record that says more than the one before: while chunks
// are read, sent and staged, and while memory is being made, there may be an image. Whoever waits
// for one holds back what would begin more; what is under way ends by itself, as soon as devices
// and log are done with it. mover_simulation_test.cc takes images at any moment.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/mutex.h"
#include "server/mover/mover.h"

namespace embla {
namespace {

struct MovesRows {
  bool operator()(const InstallStaged&) const { return true; }
  bool operator()(const TrimRows&) const { return true; }
  bool operator()(const RelocateRows&) const { return true; }
  bool operator()(const auto&) const { return false; }
};

// Whether the log says less of the unit until the work is done, or the unit's rows do.
bool IsOwed(const UnitWork& work) {
  const auto* const action = std::get_if<NodeAction>(&work);
  if (action == nullptr) return false;
  return std::holds_alternative<LogAction>(*action) || std::visit(MovesRows{}, *action);
}

bool OwesNothing(const MovingUnit& unit) {
  return !unit.is_moving_rows && std::ranges::none_of(unit.work, IsOwed);
}

}  // namespace

void Mover::NoteStarted(MovingUnit& unit, const UnitWork& work) {
  const auto* const action = std::get_if<NodeAction>(&work);
  unit.is_moving_rows = action != nullptr && std::visit(MovesRows{}, *action);
}

void Mover::WhenLogged(WhenLoggedWork work) {
  queue_->Post([this, work = std::move(work)]() mutable {
    if (image_.has_value()) return work(nullptr);
    image_.emplace(ImageWait{std::move(work), parts_.clock.Now() + options_.image_wait_max});
    TakeImageIfLogged();
  });
}

bool Mover::WhileLogged(const std::function<void(const LoggedUnits&)>& work) {
  struct Waiter {
    Mutex mu;
    CondVar changed;
    bool is_over ABSL_GUARDED_BY(mu) = false;  // Also when the work was dropped.
    bool has_run ABSL_GUARDED_BY(mu) = false;
  };
  auto waiter = std::make_shared<Waiter>();
  // The work's copy is the only one: when it goes, with or without having run, the caller is told.
  std::shared_ptr<Waiter> told(waiter.get(), [waiter](Waiter* over) {
    const MutexLock lock(over->mu);
    over->is_over = true;
    over->changed.NotifyAll();
  });
  WhenLogged([&work, told = std::move(told)](const LoggedUnits* units) {
    if (units == nullptr) return;
    work(*units);
    const MutexLock lock(told->mu);
    told->has_run = true;
  });
  const MutexLock lock(waiter->mu);
  while (!waiter->is_over) waiter->changed.Wait(waiter->mu);
  return waiter->has_run;
}

bool Mover::HoldsBack(const MovingUnit& unit) const {
  return image_.has_value() && OwesNothing(unit);
}

// A step that had begun may have put a record behind work whose end waits.
void Mover::LetGoOn(const MovingUnit& unit) {
  if (!image_.has_value() || OwesNothing(unit)) return;
  const auto end = image_->done.extract(unit.id);
  if (!end.empty()) end.mapped()();
}

void Mover::TakeImageIfLogged() {
  if (!image_.has_value() || image_->is_taken || steps_open_ > 0) return;
  const auto is_dropped = [this](const UnitId& id) { return !parts_.host.ShapeOf(id).ok(); };
  for (const auto& [id, unit] : units_) {
    if (!OwesNothing(*unit) && !is_dropped(id)) return;
  }
  struct Known {
    UnitId id;
    std::shared_ptr<UnitTracker> tracker;
    bool is_adopting = false;
    std::uint32_t device = 0;
    RowRun run;
  };
  std::vector<Known> known;
  for (const auto& [id, unit] : units_) {
    if (is_dropped(id)) continue;
    known.push_back({id, unit->tracker, unit->adopts.has_value(), unit->target_device, unit->run});
  }
  image_->is_taken = true;
  const LoggedUnits units = [&known] {
    std::vector<RestoredUnit> all;
    for (const Known& unit : known) {
      // One of the table's rest, as far as the log goes.
      if (unit.is_adopting && !unit.tracker->is_adopted()) continue;
      RestoredUnit& logged = all.emplace_back(unit.tracker->Logged(unit.id));
      logged.device = unit.device;
      logged.run = unit.run;
    }
    return all;
  };
  image_->work(&units);
  EndImageWait();
}

void Mover::GiveUpImage(absl::Time now) {
  if (!image_.has_value() || now < image_->until) return;
  image_->is_taken = true;
  image_->work(nullptr);
  EndImageWait();
}

// The waiting thread is told when all that was held back has been done.
void Mover::EndImageWait() {
  const ImageWait over = *std::exchange(image_, std::nullopt);
  for (const auto& [id, end] : over.done) end();
  for (const std::function<void()>& event : over.held) event();
}

}  // namespace embla
