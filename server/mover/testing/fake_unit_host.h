// The tables of a node as a handful of counters, on a device that runs when the test says so.
//
// A chunk's rows are how many times each update was applied to it: an update that is lost or
// applied twice shows.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "server/migration/unit_host.h"

namespace embla::testing {

using UpdateName = std::pair<SessionId, UpdateSeq>;
using ChunkRows = std::map<UpdateName, std::uint64_t>;  // By update, how many times applied.

struct HostFaults {
  double refuse_reserve = 0;
  double fail_stage = 0;
  double fail_relocate = 0;
  absl::Duration request_delay = absl::ZeroDuration();
};

// Thread safety: none.
class FakeUnitHost final : public UnitHost {
 public:
  FakeUnitHost(std::uint32_t chunks, std::uint64_t seed) : chunks_(chunks), random_(seed) {}

  HostFaults faults;
  bool asks_apart = false;
  std::uint64_t joined = 0;  // Units whose record has joined, in the life of the process.
  // Asked before an update is applied; an error refuses it.
  std::function<absl::Status(const UnitId& unit, const UnitUpdate& update, bool is_gated)>
      log_update = [](const UnitId&, const UnitUpdate&, bool) { return absl::OkStatus(); };

  // The unit is here from the start.
  void Place(const UnitId& unit);
  void Update(const UnitId& unit, const UnitUpdate& update,
              std::function<void(PartStatus)> answered);

  // Applies what was decided before. A gate, if it was one that decided, has its own record.
  void Replay(const UnitId& unit, const UnitUpdate& update, bool is_gated);

  // Content of a snapshot: rows, also staged ones, and windows without gates.
  struct UnitImage {
    bool is_here = false;
    std::uint32_t device = 0;
    std::vector<ChunkRows> rows;
    UnitWindows windows;
    std::optional<std::vector<ChunkRows>> staged;
  };
  using Image = std::map<UnitId, UnitImage>;
  Image TakeImage() const;
  // Begins with it, but for staged rows: these come when there is memory for them.
  void Begin(const Image& image);
  void WriteStaged(const UnitId& unit, std::uint32_t chunk, const ChunkRows& rows) {
    units_.at(unit).staged.value()[chunk] = rows;
  }

  // Runs the device's next task. False: there is none.
  bool RunOne();
  bool is_idle() const { return turns_.empty() && device_.empty() && late_.empty(); }

  bool Knows(const UnitId& unit) const { return units_.count(unit) != 0; }
  bool IsHere(const UnitId& unit) const { return units_.at(unit).is_here; }
  // Whether the unit is staged, or has room on another device.
  bool HasStaged(const UnitId& unit) const {
    return units_.at(unit).staged.has_value() || units_.at(unit).room.has_value();
  }
  std::uint32_t DeviceOf(const UnitId& unit) const { return units_.at(unit).device; }
  const std::vector<ChunkRows>& RowsOf(const UnitId& unit) const { return units_.at(unit).rows; }
  // Whether an update never seen before would be taken.
  bool TakesUpdates(const UnitId& unit) const;

  absl::StatusOr<UnitShape> ShapeOf(const UnitId& unit) const override;
  absl::Duration RequestDelay() const override { return faults.request_delay; }
  void RunInOrder(TableId table, std::function<void()> work) override;
  void SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) override;
  UnitWindows WindowsOf(const UnitId& unit) const override;
  // Each unit is a table's rest of its own: it may join at the round after it was noted.
  void StepFold(TableId, PlanVersion) override {}
  void CancelFold(TableId table) override;
  void NoteForFold(const UnitId& unit, const UnitWindows&, PlanVersion plan) override;
  PlanVersion MayJoin(const UnitId& unit) const override { return units_.at(unit).noted; }
  void JoinRest(const UnitId& unit, const UnitWindows& windows, PlanVersion plan) override;
  bool AsksApart(TableId) const override { return asks_apart; }
  void ReadChunk(const UnitId& unit, std::uint32_t chunk, ChunkTurn turn,
                 std::function<void(absl::StatusOr<Buffer>)> done) override;
  void Trim(const UnitId& unit, HostDone done) override;
  void Reserve(const UnitId& unit, std::uint32_t device, const RowRun& run, HostDone done) override;
  void Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block, ChunkTurn turn,
             HostDone done) override;
  void Reset(const UnitId& unit, HostDone done) override;
  void Install(const UnitId& unit, std::shared_ptr<UnitGate> gate, HostDone done) override;
  void Discard(const UnitId& unit, HostDone done) override;
  void Relocate(const UnitId& unit, HostDone done) override;

 private:
  struct Unit {
    bool is_here = false;
    std::uint32_t device = 0;  // Device of rows that are on the node, or staged.
    std::vector<ChunkRows> rows;
    UnitWindows windows;  // Without a gate.
    std::shared_ptr<UnitGate> gate;
    PlanVersion noted{};
    std::optional<std::vector<ChunkRows>> staged;
    std::optional<std::uint32_t> room;  // Another device, reserved for a unit that is on the node.
  };

  struct Task {
    std::uint64_t number = 0;
    std::function<void()> work;
  };
  // Requests, and what has its place among them.
  void Queue(std::function<void()> work) { turns_.push_back({++queued_, std::move(work)}); }
  // At kNow it overtakes those whose turn has not come; at kWhenIdle later tasks may overtake it,
  // it overtakes none.
  void QueueChunk(ChunkTurn turn, std::function<void()> work) {
    (turn == ChunkTurn::kNow ? device_ : late_).push_back({++queued_, std::move(work)});
  }
  bool MayRunLate() const;
  PartStatus Decide(const UnitId& id, const UnitUpdate& update);
  static void WriteRows(Unit& unit, const UnitUpdate& update);
  bool Happens(double chance) { return std::bernoulli_distribution(chance)(random_); }

  const std::uint32_t chunks_;
  std::mt19937_64 random_;
  mutable std::map<UnitId, Unit> units_;
  std::uint64_t queued_ = 0;  // Tasks, ever.
  std::deque<Task> turns_;
  std::deque<Task> device_;
  std::deque<Task> late_;
};

}  // namespace embla::testing
