// Carries out changes of copies, one after the other. Each is one new plan, which is its only
// commit; the node that is concerned then says when it has come into effect:
//
//   kAdd     the copy has every acknowledged update, and serves lookups
//   kLead    the copy was there and served before the plan; it orders the updates now
//   kRemove  the node has heard of it: the copy serves nothing any more; and the primary has heard
//            of that, so that nobody waits for the node
//   kInherit the copy that was chosen leads
//   kAnew    likewise
//
// kInherit chooses among the copies that are left: all of them are asked, and the first one that
// says that it has every acknowledged update becomes the primary by the next plan. One that does
// not begin to lead (its process has lost the rows meanwhile) is replaced by another one that has
// them. Where none has, the change fails, or, if the operator gives up what is lost, some live copy
// leads as it is.
//
// A forgotten node is not waited for: it is in no plan soon, and then nobody waits for it.
//
// Questions to nodes are repeated until they are answered, so nothing but the plan and the list of
// changes has to be remembered.
//
// Failpoints (core/base/failpoint.h): copies.commit, copies.commit_done.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/copy_change.h"
#include "server/coordinator/unit_driver.h"
#include "server/migration/move_orders.h"

namespace embla {

class CopyDriver {
 public:
  // Not owned; outlives this object.
  explicit CopyDriver(MoveCluster& cluster) : cluster_(cluster) {}

  // Copies that are in the plan already are only waited for. `may_lose`: a copy that is not known
  // to have everything may inherit.
  void Begin(std::vector<CopyChange> changes, bool may_lose = false);
  // Commits nothing more; waits for what is committed and must be heard of.
  void Cancel();
  void OnReport(NodeId node, const UnitReport& report);
  // `commits`: whether a new plan may be made. `cause` is recorded in the history of the plan.
  void Tick(bool commits, const std::string& cause, absl::Time now);
  std::map<NodeId, std::vector<UnitOrder>> TakeOrders();

  bool is_over() const { return done_ == changes_.size(); }
  std::uint64_t done_count() const { return done_; }
  const std::vector<CopyChange>& changes() const { return changes_; }
  // Tells what the change that is carried out waits for; empty: nothing.
  JobWait WaitsFor() const;
  // Why a change cannot be made, if it cannot: the job fails.
  const std::string& error() const { return error_; }

 private:
  const TablePlan* TableOf(const CopyChange& change) const;
  // The node that is to say how the change that is carried out is.
  NodeId Asked() const;
  void Ask(absl::Time now);
  void Done(NodeId node);
  void OnHeirReport(NodeId node, const UnitReport& report);
  void InheritIfLost();
  void TickInherit(const std::string& cause, absl::Time now);
  // Goes on without the lost copies: no copy is known to have every acknowledged update.
  void DoWithout(const TablePlan& table);
  void Put(TablePlan after, const std::string& what, const std::string& cause, absl::Time now);
  void Commit(const std::string& cause, absl::Time now);
  void Advance();

  MoveCluster& cluster_;  // Not owned; outlives this object.
  std::vector<CopyChange> changes_;
  std::size_t done_ = 0;
  bool is_committed_ = false;  // The change that is carried out is in the plan.
  // The plan that the node must have installed for the change.
  PlanVersion plan_{};
  bool may_lead_ = false;  // The copy that is to lead serves.
  bool is_gone_ = false;   // The copy that is removed is.
  // For kInherit: who said that it has everything, since when one is looked for, and whether the
  // primary is to lead as it is.
  std::optional<NodeId> heir_;
  absl::Time since_ = absl::InfinitePast();
  bool is_forced_ = false;
  bool may_lose_ = false;
  absl::Time asked_ = absl::InfinitePast();
  std::string error_;
  std::map<NodeId, std::vector<UnitOrder>> orders_;
};

}  // namespace embla
