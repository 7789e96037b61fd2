// A node of the simulation: a log that lasts, and a process around it that dies and begins again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "server/migration/move_orders.h"
#include "server/mover/mover.h"
#include "server/mover/testing/fake_unit_host.h"
#include "server/mover/testing/test_log.h"
#include "server/mover/unit_replay.h"

namespace embla::testing {

struct SimulatedNodeOptions {
  std::map<NodeId, std::string> addresses = {};  // All nodes have one.
  NodeId id{};
  std::uint32_t chunks = 0;  // Chunks of every unit.
  std::uint64_t seed = 0;
  MoverOptions mover = {};
  const Clock* clock = nullptr;  // Not owned; outlives the node.
  // Sends messages and reports of the process.
  std::function<void(const std::string& address, PeerMessage message, MoveTransport::Done done)>
      send = {};
  std::function<void(const UnitReport& report)> report = {};
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
  // Asks for an image, as a snapshot does; the next process begins with the newest one whose log is
  // synced. Requires: is_up().
  void RequestImage();
  std::uint64_t images() const { return images_; }
  // Processes that began with the image of a unit that was coming in, or kept.
  std::uint64_t starts_amid_moves() const { return starts_amid_moves_; }

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

  struct Image {
    std::size_t position = 0;  // Records of the log before it.
    std::uint64_t log_process = 0;
    std::vector<RestoredUnit> units;
    FakeUnitHost::Image tables;
  };

  void TakeSyncedImage();
  void BeginWith(const Image& image, FakeUnitHost& host, UnitReplay& replay);
  void ReplayRecord(const TestLog::Record& record, FakeUnitHost& host, UnitReplay& replay);
  void ReplayControl(const TestLog::Control& control, FakeUnitHost& host, UnitReplay& replay);

  const SimulatedNodeOptions options_;
  std::vector<UnitId> placed_;
  TestLog log_;
  std::uint64_t log_process_ = 0;
  std::optional<Image> image_;
  std::optional<Image> next_image_;  // Until its log is synced.
  std::uint64_t images_ = 0;
  std::uint64_t starts_amid_moves_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace embla::testing
