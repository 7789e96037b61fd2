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
// A copy that has everything says so at once, unless its process is down or has just begun.
constexpr absl::Duration kHeirPatience = absl::Seconds(10);

// The report of a node that ends the change.
UnitReport::Kind EndOf(CopyChange::Kind kind) {
  switch (kind) {
    case CopyChange::Kind::kAdd:
      return kCopyServes;
    case CopyChange::Kind::kLead:
    case CopyChange::Kind::kInherit:
    case CopyChange::Kind::kAnew:
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
    case CopyChange::Kind::kInherit:
      return "lost with the primary";
    case CopyChange::Kind::kAnew:
      return "made at initial values";
    case CopyChange::Kind::kRemove:
      break;
  }
  return "removed";
}

}  // namespace

void CopyDriver::Begin(std::vector<CopyChange> changes, bool may_lose) {
  changes_ = std::move(changes);
  may_lose_ = may_lose;
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
  heir_.reset();
  since_ = absl::InfinitePast();
  is_forced_ = false;
}

NodeId CopyDriver::Asked() const {
  const CopyChange& change = changes_[done_];
  const bool asks_primary = is_gone_ || change.kind == CopyChange::Kind::kInherit;
  return asks_primary ? TableOf(change)->primary().front().device.node : change.device.node;
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
  if (TableOf(change) == nullptr || report.unit != CopyOf(change.table) ||
      report.move != MoveId{ToInt(plan_)}) {
    return;
  }
  if (change.kind == CopyChange::Kind::kInherit) return OnHeirReport(node, report);
  if (node != Asked()) return;
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
  Done(node);
}

void CopyDriver::Done(NodeId node) {
  const CopyChange& change = changes_[done_];
  LogInfo("coordinator", "a copy was ", VerbOf(change.kind), " table=", ToInt(change.table),
          " node=", ToInt(node));
  ++done_;
  Advance();
}

void CopyDriver::OnHeirReport(NodeId node, const UnitReport& report) {
  const TablePlan& table = *TableOf(changes_[done_]);
  if (node == changes_[done_].device.node || !HoldersOf(table).contains(node)) return;
  if (is_committed_ && node == Asked() && report.kind == kCopyLeads) return Done(node);
  const bool has_all =
      report.kind == kCopyServes || report.kind == kCopyMayLead || report.kind == kCopyLeads;
  if (has_all && (!heir_ || *heir_ == Asked())) heir_ = node;
}

// The new primary may need the old one, which is forgotten now.
void CopyDriver::InheritIfLost() {
  for (const DeviceId copy : CopiesOf(*TableOf(changes_[done_]))) {
    if (!cluster_.IsForgotten(copy.node)) continue;
    changes_[done_].kind = CopyChange::Kind::kInherit;
    changes_[done_].device = copy;
    return Advance();
  }
}

void CopyDriver::TickInherit(const std::string& cause, absl::Time now) {
  const CopyChange& change = changes_[done_];
  const TablePlan& table = *TableOf(change);
  if (since_ == absl::InfinitePast()) since_ = now;
  const bool is_late = now - since_ >= kHeirPatience;
  if (is_late && !heir_ && !is_forced_) {
    DoWithout(table);
    if (is_over()) return;
  }
  // One that was chosen has some time to begin.
  const bool is_wanted = heir_ && (!is_committed_ || (*heir_ != Asked() && is_late));
  if (is_wanted && cluster_.IsLive(*heir_)) {
    return Put(Inherited(table, change.device.node, *heir_), "lost, and another one made primary",
               cause, now);
  }
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  for (const DeviceId copy : CopiesOf(table)) {
    if (copy.node == change.device.node) continue;
    UnitOrder question = AskAboutCopy(change.table, copy.node, plan_);
    question.source_is_lost = is_forced_ && is_committed_ && copy.node == Asked();
    orders_[copy.node].push_back(std::move(question));
  }
}

void CopyDriver::DoWithout(const TablePlan& table) {
  const CopyChange& change = changes_[done_];
  if (!may_lose_) {
    error_ = absl::StrCat("no copy of table ", table.spec.name,
                          " that is left is known to have every acknowledged update: start the "
                          "nodes that have one, or give up what is lost (--lose-rows)");
    changes_.resize(done_);
    return;
  }
  for (const DeviceId copy : CopiesOf(table)) {
    if (copy.node == change.device.node || !cluster_.IsLive(copy.node)) continue;
    LogWarning("coordinator", "a copy leads that may lack updates table=", table.spec.name,
               " node=", ToInt(copy.node));
    heir_ = copy.node;
    is_forced_ = true;
    return;
  }
}

void CopyDriver::Tick(bool commits, const std::string& cause, absl::Time now) {
  if (is_over()) return;
  if (TableOf(changes_[done_]) == nullptr) return Advance();
  if (changes_[done_].kind == CopyChange::Kind::kLead && is_committed_) InheritIfLost();
  if (changes_[done_].kind == CopyChange::Kind::kInherit) return TickInherit(cause, now);
  if (is_committed_ && cluster_.IsForgotten(Asked())) return Done(Asked());
  // Only a copy that has everything may lead: its node is asked first.
  const CopyChange& change = changes_[done_];
  const bool is_ready = change.kind != CopyChange::Kind::kLead || may_lead_;
  const NodeId node = change.device.node;
  const bool is_heard = cluster_.IsLive(node) || cluster_.IsForgotten(node);
  if (!is_committed_ && commits && is_ready && is_heard) {
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
  Put(*std::move(after), VerbOf(change.kind), cause, now);
  if (is_committed_) Ask(now);
}

void CopyDriver::Put(TablePlan after, const std::string& what, const std::string& cause,
                     absl::Time now) {
  const NodeSpec* const node = cluster_.plan()->FindNode(changes_[done_].device.node);
  PlanEdit edit{.tables = {std::move(after)}, .cause = "", .at = now};
  edit.cause = absl::StrCat("copy of table ", edit.tables.front().spec.name, " on node ",
                            node == nullptr ? "?" : node->name, " ", what, " by ", cause);
  CrashPoint("copies.commit");
  const absl::StatusOr<Revision> written = cluster_.PutPlan(std::move(edit));
  CrashPoint("copies.commit_done");
  if (!written.ok()) {  // Tried again.
    LogWarning("coordinator", "cannot commit a change of copies: ", Message(written.status()));
    return;
  }
  is_committed_ = true;
  plan_ = cluster_.plan()->version();
  heir_.reset();
  since_ = now;
  asked_ = absl::InfinitePast();
}

std::map<NodeId, std::vector<UnitOrder>> CopyDriver::TakeOrders() {
  return std::exchange(orders_, {});
}

JobWait CopyDriver::WaitsFor() const {
  if (is_over()) return {};
  const CopyChange& change = changes_[done_];
  const TablePlan* const table = TableOf(change);
  if (table == nullptr) return {};
  const NodeSpec* const node = cluster_.plan()->FindNode(Asked());
  if (node == nullptr) return {};
  if (!cluster_.IsLive(node->id)) {
    return {.what = absl::StrCat("waits for node ", node->name, " at ", node->address,
                                 ", which is down"),
            .node = node->name};
  }
  if (change.kind == CopyChange::Kind::kInherit && !is_committed_) {
    return {.what = absl::StrCat("waits for a copy of table ", table->spec.name,
                                 " that has every acknowledged update")};
  }
  const char* what = "to have its copy";
  if (EndOf(change.kind) == kCopyLeads) what = "to lead";
  if (change.kind == CopyChange::Kind::kRemove) what = "to give up its copy";
  if (is_gone_) what = "to do without the copy that was removed";
  return {.what = absl::StrCat("waits for node ", node->name, " ", what, " of table ",
                               table->spec.name),
          .node = node->name};
}

}  // namespace embla
