// The gate of a unit of a table with replica groups: its copies share it, and each copy's lead
// device asks it at the place of its own updates.
//
// Steps of the unit run while all of these devices stand still (UnitTables::RunInOrder), so between
// Check and Apply of one update come at most those of another group. Groups have sessions of their
// own; a sender that gives one number to two groups at once has both applied and one recorded.
#pragma once

#include <memory>
#include <utility>

#include "core/base/mutex.h"
#include "server/migration/unit_host.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class GroupGate final : public UnitGate {
 public:
  explicit GroupGate(std::shared_ptr<UnitGate> gate) : gate_(std::move(gate)) {}

  PartAnswer Check(const UnitUpdate& update) const override {
    MutexLock lock(mu_);
    return gate_->Check(update);
  }
  void Apply(const UnitUpdate& update) override {
    MutexLock lock(mu_);
    if (gate_->Check(update).status == PartStatus::kApplied) gate_->Apply(update);
  }
  void ForgetSessions(const SessionSet& sessions) override {
    MutexLock lock(mu_);
    gate_->ForgetSessions(sessions);
  }
  PartAnswer CheckLookup() const override {
    MutexLock lock(mu_);
    return gate_->CheckLookup();
  }
  bool IsAtRest() const override {
    MutexLock lock(mu_);
    return gate_->IsAtRest();
  }
  bool TakesAveraging() const override {
    MutexLock lock(mu_);
    return gate_->TakesAveraging();
  }
  void Averaged(bool all) override {
    MutexLock lock(mu_);
    gate_->Averaged(all);
  }
  UnitStepping Stepping() const override {
    MutexLock lock(mu_);
    return gate_->Stepping();
  }
  UnitStanding Standing() const override {
    MutexLock lock(mu_);
    return gate_->Standing();
  }

 private:
  mutable Mutex mu_;
  const std::shared_ptr<UnitGate> gate_;  // Steps of the unit go past the mutex.
};

}  // namespace embla
