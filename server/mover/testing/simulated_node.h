// A node of the simulation: a log that lasts, and a process around it that dies and begins again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "server/migration/move_orders.h"
#include "server/mover/mover.h"
#include "server/mover/testing/fake_unit_host.h"
#include "server/mover/testing/test_log.h"
#include "server/mover/unit_replay.h"

namespace embla::testing {

struct SimulatedNodeOptions {
  std::map<NodeId, std::string> addresses;  // All nodes have one.
  NodeId id{};
  std::uint32_t chunks = 0;  // Chunks of every unit.
  std::uint64_t seed = 0;
  MoverOptions mover;
  const Clock* clock = nullptr;  // Not owned; outlives the node.
  // Sends messages and reports of the process.
  std::function<void(const std::string& address, PeerMessage message, MoveTransport::Done done)>
      send;
  std::function<void(const UnitReport& report)> report;
};

// Thread safety: none.
class SimulatedNode {
 public:
  explicit SimulatedNode(SimulatedNodeOptions options);
  ~SimulatedNode();

  // The unit is here from the start. Before the first Start.
  void Place(const UnitId& unit) { placed_.push_back(unit); }
  // Starts a process, which replays the log and continues. Requires: !is_up().
  void Start(const HostFaults& faults);
  // Keeps `unsynced` of the log's records that are not synced. Nothing if !is_up().
  void Kill(std::size_t unsynced);

  NodeId id() const { return options_.id; }
  TestLog& log() { return log_; }
  bool is_up() const { return process_ != nullptr; }
  // Requires, of all that follow: is_up().
  Mover& mover();
  FakeUnitHost& host();
  TaskQueue& queue();
  bool is_idle() const;

 private:
  struct Process;

  void ReplayRecord(const TestLog::Record& record, FakeUnitHost& host, UnitReplay& replay);
  void ReplayControl(const TestLog::Control& control, FakeUnitHost& host, UnitReplay& replay);

  const SimulatedNodeOptions options_;
  std::vector<UnitId> placed_;
  TestLog log_;
  std::unique_ptr<Process> process_;
};

}  // namespace embla::testing
