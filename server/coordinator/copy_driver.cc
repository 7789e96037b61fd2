#include "server/coordinator/copy_driver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "server/migration/copy_orders.h"

namespace embla {
namespace {

// A node that has what it was asked about answers at once; others are asked again.
constexpr absl::Duration kAskAgain = absl::Milliseconds(100);

// What a node must say before the change is over.
UnitReport::Kind EndOf(CopyChange::Kind kind) {
  switch (kind) {
    case CopyChange::Kind::kAdd:
      return kCopyServes;
    case CopyChange::Kind::kLead:
      return kCopyLeads;
    case CopyChange::Kind::kRemove:
      break;
  }
  return kCopyGone;
}

const char* VerbOf(CopyChange::Kind kind) {
  switch (kind) {
    case CopyChange::Kind::kAdd:
      return "added";
    case CopyChange::Kind::kLead:
      return "made the primary";
    case CopyChange::Kind::kRemove:
      break;
  }
  return "removed";
}

}  // namespace

void CopyDriver::Begin(std::vector<CopyChange> changes) {
  changes_ = std::move(changes);
  done_ = 0;
  error_.clear();
  orders_.clear();
  Advance();
}

// Looks at the next change that is to be carried out.
void CopyDriver::Advance() {
  while (!is_over() && TableOf(changes_[done_]) == nullptr) ++done_;  // Dropped.
  is_committed_ = !is_over() && IsMade(changes_[done_], *TableOf(changes_[done_]));
  plan_ = cluster_.plan()->version();
  may_lead_ = false;
  is_gone_ = false;
  asked_ = absl::InfinitePast();
}

NodeId CopyDriver::Asked() const {
  const CopyChange& change = changes_[done_];
  return is_gone_ ? TableOf(change)->primary().front().device.node : change.device.node;
}

const TablePlan* CopyDriver::TableOf(const CopyChange& change) const {
  return cluster_.plan()->FindTable(change.table);
}

void CopyDriver::Cancel() {
  if (is_over()) return;
  // The primary waits for a copy until its node has heard that it is gone, and must not change
  // before.
  const bool waits = is_committed_ && changes_[done_].kind != CopyChange::Kind::kAdd;
  changes_.resize(waits ? done_ + 1 : done_);
}

void CopyDriver::OnReport(NodeId node, const UnitReport& report) {
  if (is_over()) return;
  const CopyChange& change = changes_[done_];
  if (TableOf(change) == nullptr || report.unit != CopyOf(change.table) || node != Asked() ||
      report.move != MoveId{ToInt(plan_)}) {
    return;
  }
  if (!is_committed_) {
    may_lead_ = report.kind == kCopyServes;
    return;
  }
  // A primary serves, too.
  const bool serves = change.kind == CopyChange::Kind::kAdd && report.kind == kCopyLeads;
  const UnitReport::Kind wanted = is_gone_ ? kCopyLeads : EndOf(change.kind);
  if (report.kind != wanted && !serves) return;
  if (change.kind == CopyChange::Kind::kRemove && !is_gone_) {
    is_gone_ = true;
    asked_ = absl::InfinitePast();
    return;
  }
  LogInfo("coordinator", "a copy was ", VerbOf(change.kind), " table=", ToInt(change.table),
          " node=", ToInt(node));
  ++done_;
  Advance();
}

void CopyDriver::Tick(bool commits, const std::string& cause, absl::Time now) {
  if (is_over()) return;
  if (TableOf(changes_[done_]) == nullptr) return Advance();
  // Only a copy that has everything may lead: its node is asked first.
  const CopyChange& change = changes_[done_];
  const bool is_ready = change.kind != CopyChange::Kind::kLead || may_lead_;
  if (!is_committed_ && commits && is_ready && cluster_.IsLive(change.device.node)) {
    return Commit(cause, now);
  }
  if (now - asked_ >= kAskAgain && (is_committed_ || !is_ready)) Ask(now);
}

void CopyDriver::Ask(absl::Time now) {
  const CopyChange& change = changes_[done_];
  asked_ = now;
  const NodeId node = Asked();
  orders_[node].push_back(AskAboutCopy(change.table, node, plan_));
}

void CopyDriver::Commit(const std::string& cause, absl::Time now) {
  const CopyChange& change = changes_[done_];
  const TablePlan& table = *TableOf(change);
  absl::StatusOr<TablePlan> after = After(change, table);
  if (!after.ok()) {
    error_ = Message(after.status());
    return;
  }
  const NodeSpec* const node = cluster_.plan()->FindNode(change.device.node);
  PlanEdit edit{.table = *std::move(after),
                .cause = absl::StrCat("copy of table ", table.spec.name, " on node ",
                                      node == nullptr ? "?" : node->name, " ", VerbOf(change.kind),
                                      " by ", cause),
                .at = now};
  CrashPoint("copies.commit");
  const absl::StatusOr<Revision> written = cluster_.PutPlan(std::move(edit));
  CrashPoint("copies.commit_done");
  if (!written.ok()) {  // Tried again.
    LogWarning("coordinator", "cannot commit a change of copies: ", Message(written.status()));
    return;
  }
  is_committed_ = true;
  plan_ = cluster_.plan()->version();
  Ask(now);
}

std::map<NodeId, std::vector<UnitOrder>> CopyDriver::TakeOrders() {
  return std::exchange(orders_, {});
}

std::string CopyDriver::WaitsFor() const {
  if (is_over()) return "";
  const CopyChange& change = changes_[done_];
  const TablePlan* const table = TableOf(change);
  if (table == nullptr) return "";
  const NodeSpec* const node = cluster_.plan()->FindNode(Asked());
  if (node == nullptr) return "";
  if (!cluster_.IsLive(node->id)) {
    return absl::StrCat("waits for node ", node->name, " at ", node->address, ", which is down");
  }
  const char* what = "to have its copy";
  if (change.kind == CopyChange::Kind::kLead) what = "to lead";
  if (change.kind == CopyChange::Kind::kRemove) what = "to give up its copy";
  if (is_gone_) what = "to do without the copy that was removed";
  return absl::StrCat("waits for node ", node->name, " ", what, " of table ", table->spec.name);
}

}  // namespace embla
