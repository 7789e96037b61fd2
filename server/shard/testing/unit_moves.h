// Moves of units between the nodes of a LocalCluster without the protocol: a script of UnitHost's
// calls, and gates that do as they are told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "core/base/mutex.h"
#include "server/migration/step_session.h"
#include "server/migration/unit_host.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::testing {

// A gate whose state is set between two updates, on the lead device.
class ScriptedGate final : public UnitGate {
 public:
  explicit ScriptedGate(UnitWindows windows, UnitEpoch epoch = UnitEpoch{1})
      : windows_(std::move(windows)), epoch_(epoch) {}

  PartAnswer Check(const UnitUpdate& update) const override;
  void Apply(const UnitUpdate& update) override;
  void ForgetSessions(const SessionSet& sessions) override { windows_.Forget(sessions); }
  PartAnswer CheckLookup() const override;
  bool IsAtRest() const override { return !moved_ && !frozen_; }
  bool TakesAveraging() const override { return IsAtRest(); }
  void Averaged(bool) override {}
  UnitStepping Stepping() const override {
    return {.is_here = !moved_,
            .is_frozen = frozen_,
            .next_step = NextStep(windows_.FloorOf(kStepSession))};
  }
  UnitStanding Standing() const override {
    if (moved_) return {};
    return {.state = UnitStanding::State::kOwned, .epoch = epoch_};
  }

  void Freeze() { frozen_ = true; }
  void Unfreeze() { frozen_ = false; }
  // `owner` (0: not known) has the unit now, in the next epoch.
  void Release(NodeId owner) {
    moved_ = true;
    owner_ = owner;
    epoch_ = Next(epoch_);
  }
  UnitEpoch epoch() const { return epoch_; }
  const UnitWindows& windows() const { return windows_; }

 private:
  UnitWindows windows_;
  bool frozen_ = false;
  bool moved_ = false;
  NodeId owner_{};  // Where it has moved.
  UnitEpoch epoch_;
};

// Table 7, "t", of four units, all on `device`: SGD with learning rate 1, all weights 0.
TablePlan TableOfFourUnits(std::int64_t rows, std::uint32_t dim, DeviceId device);

// Calls `start(done)` and waits for the status.
absl::Status AwaitStatus(const std::function<void(HostDone)>& start);
// Runs `work` in the order of the table's updates and waits for it.
void RunInOrder(UnitHost& host, TableId table, const std::function<void()>& work);

// Places of one table's units. Thread safety: every method may be called from any thread; one
// thread moves units.
class UnitMoves {
 public:
  // The cluster has the table's plan. Not owned; outlives this object.
  UnitMoves(LocalCluster& cluster, TablePlan table);

  const std::vector<UnitId>& units() const { return units_; }
  const UnitShape& shape(std::size_t unit) const { return shapes_[unit]; }
  NodeId OwnerOf(std::size_t unit) const { return Owners()[unit]; }
  // Returns the owner of every unit at one moment.
  std::vector<NodeId> Owners() const;

  // Copies the unit, hands it over and forgets it at the source; the first error.
  absl::Status Move(std::size_t unit, NodeId target, std::uint32_t device);
  // Like Move, but the target gives up when the source is frozen.
  absl::Status MoveInVain(std::size_t unit, NodeId target, std::uint32_t device);
  // To another device of its node, or the one that it is on.
  absl::Status ChangeDevice(std::size_t unit, std::uint32_t device);
  // Like ChangeDevice, but the room is given back.
  absl::Status ChangeDeviceInVain(std::size_t unit, std::uint32_t device);

 private:
  UnitHost& HostOf(NodeId node) { return cluster_.node(node).units(); }
  ScriptedGate& StartMove(std::size_t unit, NodeId source);
  absl::Status Reserve(std::size_t unit, NodeId target, std::uint32_t device);
  absl::Status Copy(std::size_t unit, NodeId source, NodeId target, ChunkTurn turn);
  absl::Status CopyTwice(std::size_t unit, NodeId source, NodeId target, std::uint32_t device);

  LocalCluster& cluster_;
  const TablePlan table_;
  std::vector<UnitId> units_;
  std::vector<UnitShape> shapes_;
  std::map<std::pair<NodeId, UnitId>, std::shared_ptr<ScriptedGate>> gates_;
  mutable Mutex mu_;
  std::vector<NodeId> owners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::testing
