// Makes the records of units agree with what nodes have: a store that was restored from an older
// copy has forgotten moves, and so has a node whose directory was.
//
// The idea: an epoch has one owner, and epochs only grow. A node that owns a unit under a higher
// epoch than the record's shows that the record is behind: it is raised, and the plan with it. A
// node that owns a unit which is another node's by the record is told so: it stops to serve the
// unit, and keeps the rows aside (server/migration). A move that the store has forgotten is written
// down once all nodes were heard: as over when its source has let go of the unit, else as open, and
// its source is asked to end it. In a store that has forgotten nothing none of this finds anything
// to do but to write down what nodes have handed over meanwhile.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/coordinator/unit_driver.h"
#include "server/coordinator/unit_records.h"
#include "server/migration/move_orders.h"
#include "server/migration/unit_standing.h"
#include "server/state_store/state_store.h"

namespace embla {

class UnitSettler {
 public:
  // Both are not owned and outlive this object.
  UnitSettler(StateStore& store, MoveCluster& cluster) : store_(store), cluster_(cluster) {}

  // Takes in the units that `node` has now. Errors of StateStore::Commit; DataLoss: a record is not
  // readable.
  absl::Status Hear(NodeId node, std::vector<UnitStandings> units, absl::Time now);
  bool HasHeard(NodeId node) const { return heard_.contains(node); }
  // Whether the node has nothing, as far as it has said, that it is to let go of.
  bool IsSettled(NodeId node) const { return !settling_.contains(node); }
  // Standing of the unit when the node registered; elsewhere, if it said nothing.
  UnitStanding StandingOf(NodeId node, const UnitId& unit) const;
  // All nodes of the plan were heard since the coordinator started. Errors as for Hear.
  absl::Status EndForgottenMoves(absl::Time now);
  // Errors as for Hear.
  absl::Status OnReport(NodeId node, const UnitReport& report, absl::Time now);
  // The rows that `node` keeps aside of `table` are dropped.
  void DropAside(NodeId node, TableId table);
  void Tick(absl::Time now);
  std::map<NodeId, std::vector<UnitOrder>> TakeOrders();

  // Records that had forgotten a move, ever.
  std::uint64_t raised_count() const { return raised_; }

 private:
  // A unit as one node knows it.
  struct Standing {
    NodeId node{};
    UnitStanding standing;
    std::uint32_t device = 0;
  };
  // A record that is behind.
  struct Raise {
    UnitRecord record;
    DeviceId device{};  // The owner's device.
    bool was_forgotten = true;
  };
  using Raises = std::map<UnitId, Raise>;

  // A table's units as plan and store have them.
  class Units;

  void Compare(NodeId node, const UnitStandings& units, const Units& known, Raises* raises);
  static std::optional<Raise> WhatIsForgotten(const UnitRecord& record,
                                              const std::vector<Standing>& told);
  absl::Status Write(Raises raises, absl::Time now);
  absl::Status WriteBatch(const Raises& batch, absl::Time now);

  StateStore& store_;     // Not owned; outlives this object.
  MoveCluster& cluster_;  // Not owned; outlives this object.
  std::map<NodeId, std::vector<UnitStandings>> heard_;
  // Units that nodes are to let go of, until they have said so.
  std::map<NodeId, std::set<UnitId>> settling_;
  // Open moves that the store had forgotten, with the device that they lead to.
  std::map<UnitId, DeviceId> unwanted_;
  std::map<NodeId, std::vector<UnitOrder>> orders_;
  absl::Time told_ = absl::InfinitePast();
  std::uint64_t raised_ = 0;
};

}  // namespace embla
