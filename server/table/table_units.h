// Keeps which units of a table are on this node, and the gates to ask before a unit that may be on
// the move is touched (server/migration/unit_host.h).
//
// Only units that take or took part in a move have a gate. A unit that came to rest is folded back:
// its record of updates joins that of the other units, "the rest", and its gate is asked no more
// until it moves again (docs/consistency.md, "Units that came to rest"). Without gates a table pays
// nothing; with gates, an update's rows are sorted by row granule: no slice cuts through one.
//
// Thread safety: any_gates() and asks_apart() may be called from any thread, the rest is for the
// table's lead device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/table_spec.h"
#include "core/rows/request.h"
#include "server/migration/record_fold.h"
#include "server/migration/unit_host.h"
#include "server/storage/row_store.h"
#include "server/table/row_intervals.h"
#include "server/table/unit_shape.h"

namespace embla {

class TableUnits {
 public:
  // A unit that another node has, as its gate says.
  struct Moved {
    RowInterval rows;
    ColumnRange columns;
    NodeId owner{};  // 0: not known.
    UnitEpoch epoch{};
  };
  // The units of one column cut.
  struct Cut {
    struct Gated {
      std::uint32_t row_granule = 0;
      UnitShape shape;
      std::shared_ptr<UnitGate> gate;
      bool is_folded = false;  // The rest's record is the unit's; only Standing is asked.
    };
    ColumnRange columns;
    RowIntervals present;  // On some device of this node.
    RowIntervals staged;
    std::vector<Gated> gates;
    std::size_t folded = 0;              // Gates folded back.
    std::vector<std::uint32_t> gate_of;  // By row granule: 1 + the position in gates, or 0.
    // AskWhoServes': rows whose gates do not serve lookups, and where these units are, ascending.
    RowIntervals closed;
    std::vector<Moved> moved;
    // By row granule: present, and without a gate; FindRest's.
    std::vector<char> is_rest;
    bool rest_is_known = false;

    // kNoGate for a unit without a gate, or that is folded back.
    static constexpr std::uint32_t kNoGate = 0xffffffff;
    std::uint32_t GateOf(std::uint32_t granule) const {
      const std::uint32_t gate = KnownGateOf(granule);
      return gate == kNoGate || gates[gate].is_folded ? kNoGate : gate;
    }
    // Also for a unit that is folded back.
    std::uint32_t KnownGateOf(std::uint32_t granule) const {
      return gate_of.empty() ? kNoGate : gate_of[granule] - 1;
    }
    bool Meets(ColumnRange other) const {
      return columns.begin < other.end && other.begin < columns.end;
    }
  };

  explicit TableUnits(const TableSpec& spec) : spec_(spec) {}

  // The cut of exactly these columns, made if need be: to be changed, so that `is_rest` is not
  // known.
  Cut& CutOf(ColumnRange columns);
  // Brings `is_rest` of every cut up to date.
  void FindRest();
  std::span<const Cut> cuts() const { return cuts_; }

  // Null: the unit is no longer tracked.
  void SetGate(std::uint32_t row_granule, const UnitShape& shape, std::shared_ptr<UnitGate> gate);
  // The rest's record, which has taken in the unit's, is asked from now on, until SetGate. False:
  // the unit has no gate.
  bool Fold(std::uint32_t row_granule, const UnitShape& shape);
  RecordFold& fold() { return fold_; }
  // Admits an update as RecordFold::Admit does.
  bool Admit(PlanVersion routed_since, PlanVersion installed);
  bool asks_apart() const { return asks_apart_.load(std::memory_order_relaxed); }
  // Call after any change of gates: cached answers about lookups are dropped.
  void GatesMayHaveChanged() {
    closed_is_known_ = false;
    version_ = NextVersion();
  }
  // Another one after any change of what is here, or of gates; of this table alone, not 0.
  std::uint64_t version() const { return version_; }
  void ForgetSessions(const SessionSet& sessions);
  bool any_gates() const { return any_gates_.load(std::memory_order_acquire); }

  // Requires: 0 <= row < the table's rows; FindRest was called.
  std::uint32_t GranuleOf(std::int64_t row) const { return granule_finder_.GranuleOf(row); }
  std::uint32_t granules() const { return spec_.row_granules; }

  // The rows of the cut of exactly these columns whose gates do not serve lookups.
  const RowIntervals& ClosedRows(ColumnRange columns);
  // FailedPrecondition unless every gate that lies on `ids` and `columns` serves lookups; `moved`
  // then gets the units that do not, each once. Units that `ids` have no row of are not named: of
  // one that left long ago the sender may know more than this node (docs/protocol.md, "Hints").
  absl::Status CheckServed(std::span<const RowId> ids, ColumnRange columns,
                           std::vector<Moved>& moved);

 private:
  static void RemoveGate(Cut& cut, std::uint32_t row_granule);
  static std::uint64_t NextVersion();
  void CountGates();
  void AskWhoServes();
  absl::Status CheckServed(std::span<const RowId> ids, const Cut& cut,
                           std::vector<Moved>& moved) const;

  const TableSpec spec_;  // For the shape of the table.
  std::vector<Cut> cuts_;
  GranuleFinder granule_finder_;  // FindRest's.
  bool closed_is_known_ = false;
  std::uint64_t version_ = NextVersion();
  std::atomic<bool> any_gates_ = false;  // True if any gate is to be asked. Released by SetGate.
  RecordFold fold_;
  std::atomic<bool> asks_apart_ = false;  // Relaxed: readers look again.
};

}  // namespace embla
