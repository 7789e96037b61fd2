// Some movers, a coordinator and trainers in one thread, with a network that loses, repeats, delays
// and reorders whatever is sent, and nodes that die and begin again from their logs. Everything
// follows from the seed.
//
// The oracle: each update that was acknowledged is in the owner's rows, none is in them twice, no
// two nodes take updates of a unit at one time, and in the end nobody but the owner has rows of it,
// on the device that the last move took it to.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "server/migration/coordinator_step.h"
#include "server/mover/mover.h"
#include "server/mover/testing/simulated_node.h"

namespace embla::testing {

struct SimulationOptions {
  std::uint64_t seed = 0;
  std::uint32_t nodes = 3;
  std::uint32_t units = 2;
  std::uint32_t chunks = 4;
  std::uint32_t sessions = 2;
  std::uint64_t updates_in_flight_max = 6;  // Limit for a session.
  double lose = 0.1;                        // A message.
  double repeat = 0.1;
  HostFaults host;
  double log_full = 0.02;       // For a record.
  double kill = 0;              // A node, per step.
  double image = 0;             // An image of a node, per step of it.
  double sync = 1;              // The log, when it might.
  double kill_coordinator = 0;  // Rate for a unit, when it has something to do.
  double abandon = 0;           // An update that is about to be sent again.
  std::uint64_t bytes_per_second = 0;
};

class MoveSimulation {
 public:
  explicit MoveSimulation(const SimulationOptions& options);
  ~MoveSimulation();

  // Takes `steps` random steps, with faults.
  void Run(int steps);
  // Ends the faults and runs until every move is over and every update acknowledged. False: that
  // takes too long.
  bool ComeToRest();
  // Describes the first violation, if any. After ComeToRest everything can be checked.
  std::string violation() const { return violation_; }
  void CheckAtRest();
  std::string Describe() const;

  std::uint64_t folds() const;  // In the lives of the processes that run.
  std::uint64_t commits() const { return commits_; }
  std::uint64_t commits_within_nodes() const { return commits_within_nodes_; }
  std::uint64_t aborts() const { return aborts_; }
  std::uint64_t acked() const { return acked_; }
  std::uint64_t refused() const { return refused_; }
  std::uint64_t deaths() const { return deaths_; }
  std::uint64_t images() const;
  std::uint64_t starts_amid_moves() const;  // From images.

 private:
  struct UnitRow;  // One unit in the store, and the coordinator's view of it.
  struct Trainer;
  struct Pending {
    UnitId unit;
    std::vector<std::uint32_t> chunks;
  };

  void AddNode(NodeId id);
  SimulatedNode& NodeOf(const std::string& address) { return *nodes_[std::stoul(address) - 1]; }
  // A message between movers.
  void Carry(SimulatedNode& to, PeerMessage message, MoveTransport::Done done);

  void TakeStep();
  void StepNode(SimulatedNode& node, std::uint64_t what);
  void Kill(SimulatedNode& node);
  void DeliverOne();
  void StartOrCancelMove();
  void TickCoordinator();
  void Coordinate(UnitRow& row, const CoordinatorEvent& event);
  void Tell(NodeId to, const UnitRow& row, const UnitRecord& record, const TellCancel* cancel);
  void OnReport(NodeId from, const UnitReport& report);
  void BeginUpdate(Trainer& trainer);
  void SendUpdate(Trainer& trainer, UpdateSeq seq);
  void Acknowledge(Trainer& trainer, UpdateSeq seq);
  void Post(std::function<void()> message);
  void CheckOneWriter();
  bool IsAtRest() const;

  std::uint64_t Random(std::uint64_t below) {
    return std::uniform_int_distribution<std::uint64_t>(0, below - 1)(random_);
  }
  bool Happens(double chance) {
    return has_faults_ && std::bernoulli_distribution(chance)(random_);
  }

  const SimulationOptions options_;
  std::mt19937_64 random_;
  ManualClock clock_{absl::FromUnixSeconds(1'000'000)};
  bool has_faults_ = true;
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::vector<std::unique_ptr<UnitRow>> units_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::function<void()>> network_;
  std::string violation_;
  std::uint64_t commits_ = 0;
  std::uint64_t commits_within_nodes_ = 0;
  std::uint64_t aborts_ = 0;
  std::uint64_t acked_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t deaths_ = 0;
};

}  // namespace embla::testing
