// A store that has gone back in time: its directory was restored from an older copy, and plan
// versions, ids, tables and moves that nodes know of are forgotten.
//
// Each node tells at its registration what it has seen and what it has. A node that has seen
// numbers which the store never gave out makes the coordinator jump: generation + 1, and all
// numbers beyond everything seen, so that no number means two things. The numbers in between are
// a gap (number_gap.h), which is kept. Before the node gets a plan, what it has from a gap is
// merged:
//
//   a table that only the node has       is kept aside: on its nodes, unserved, until an operator
//                                        adopts or drops it
//   a table that only the store has,     was dropped after the copy was taken, and is dropped
//   and a newer plan does not
//   options, copies of data_parallel     as the newest plan says
//   tables, members of steps
//   units                                as unit_settler.h says
//
// No node ever frees, on the word of an older store, what that store does not know.
//
// Until every node of the plan was heard, no number is given out: an id of a forgotten table could
// be given to another one. A node that is not heard for `dead_after` is not waited for; then the
// next thousand numbers of each kind are skipped, which it may have seen. Tests:
// coordinator_restore_test.cc, tests/integration/restore_test.cc.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/move_jobs.h"

namespace embla {
namespace {

// Plan versions beyond the highest seen: a client may have seen some that no node has. The same
// number of ids is skipped if a node is missing.
constexpr std::uint32_t kSkipped = 1000;
// Far beyond what a cluster reaches; numbers near their ends could not be jumped beyond.
constexpr std::uint64_t kVersionMax = std::uint64_t{1} << 62;
constexpr std::uint32_t kIdMax = std::uint32_t{1} << 31;

// The highest numbers that a node has seen.
NodePast SeenBy(const NodeRegistration& registration) {
  NodePast seen = registration.past;
  if (registration.installed == nullptr) return seen;
  const Plan& plan = *registration.installed;
  seen.plan_version = std::max(seen.plan_version, plan.version());
  if (!plan.tables().empty()) seen.table = std::max(seen.table, plan.tables().back().spec.id);
  if (!plan.nodes().empty()) seen.node = std::max(seen.node, plan.nodes().back().id);
  return seen;
}

bool IsSameTable(const TableSpec& a, const TableSpec& b) {
  return a.name == b.name && a.rows == b.rows && a.dim == b.dim && a.dtype == b.dtype &&
         a.seed == b.seed && a.row_granules == b.row_granules &&
         a.optimizer.kind == b.optimizer.kind;
}

}  // namespace

absl::Status Coordinator::HearOf(const NodeRegistration& registration, absl::Time now) {
  const NodePast seen = SeenBy(registration);
  if (ToInt(seen.plan_version) >= kVersionMax || ToInt(seen.table) >= kIdMax ||
      ToInt(seen.node) >= kIdMax || seen.generation >= kVersionMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node ", registration.name, " has seen plan ", ToInt(seen.plan_version), ", table id ",
        ToInt(seen.table), " and node id ", ToInt(seen.node), ", which no cluster reaches"));
  }
  if (IsBehind(seen)) {
    EMBLA_RETURN_IF_ERROR(JumpBeyond(seen, absl::StrCat("node ", registration.name), now));
  }
  if (registration.installed == nullptr) return absl::OkStatus();
  return MergePlan(*registration.installed, registration.name, now);
}

bool Coordinator::IsBehind(const NodePast& seen) const {
  const PlanHead& head = records_.head();
  return seen.generation > head.generation || seen.plan_version > head.version ||
         ToInt(seen.table) >= head.next_table_id || ToInt(seen.node) >= head.next_node_id ||
         seen.store_revision > store_.revision();
}

absl::Status Coordinator::JumpBeyond(const NodePast& seen, const std::string& witness,
                                     absl::Time now) {
  const PlanHead& head = records_.head();
  PlanHead next = head;
  next.generation = std::max(head.generation, seen.generation) + 1;
  next.version = PlanVersion{std::max(ToInt(head.version), ToInt(seen.plan_version)) + kSkipped};
  next.next_table_id = std::max(head.next_table_id, ToInt(seen.table) + 1);
  next.next_node_id = std::max(head.next_node_id, ToInt(seen.node) + 1);
  const std::string cause =
      absl::StrCat("generation ", next.generation, ": the state has gone back in time; ", witness,
                   " has seen plan ", ToInt(seen.plan_version), ", here was ", ToInt(head.version));
  LogError("coordinator",
           "the state has gone back in time: was its directory restored from an older copy? "
           "witness=\"",
           witness, "\" plan_seen=", ToInt(seen.plan_version), " plan_here=", ToInt(head.version),
           " table_seen=", ToInt(seen.table), " revision_seen=", ToInt(seen.store_revision),
           " revision_here=", ToInt(store_.revision()), " generation=", next.generation,
           " plan_next=", ToInt(next.version));
  wait_for_nodes_until_ = now + options_.dead_after;
  has_skipped_ = false;
  has_jumped_ = true;
  return Jump(std::move(next), cause, now);
}

absl::Status Coordinator::Jump(PlanHead next, std::string cause, absl::Time now) {
  const PlanHead& head = records_.head();
  AddGap({.version_begin = Next(head.version),
          .version_end = next.version,
          .table_begin = TableId{head.next_table_id},
          .table_end = TableId{next.next_table_id},
          .node_begin = NodeId{head.next_node_id},
          .node_end = NodeId{next.next_node_id}},
         &next.gaps);
  PlanEdit edit{.cause = std::move(cause), .at = now};
  edit.jump = std::move(next);
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  return TrimHistory(store_);
}

absl::Status Coordinator::MergePlan(const Plan& plan, const std::string& name, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(CheckSameTables(plan, name));
  const std::vector<NumberGap>& gaps = records_.head().gaps;
  const auto found =
      std::ranges::find_if(gaps, [&plan](const NumberGap& one) { return one.Has(plan.version()); });
  if (found == gaps.end()) return absl::OkStatus();  // A plan of the store's own.
  const auto position = static_cast<std::size_t>(found - gaps.begin());
  const NumberGap gap = *found;
  EMBLA_RETURN_IF_ERROR(MergeNodes(plan, name, now));
  EMBLA_RETURN_IF_ERROR(MergeSteps(plan, name, now));
  // Changes by an operator since the start are newer.
  const bool is_newest = plan.version() > gap.merged && !gap.is_joined && !has_given_;
  if (is_newest) EMBLA_RETURN_IF_ERROR(MergeForgotten(plan, gap, name, now));
  EMBLA_RETURN_IF_ERROR(PutTablesAside(plan, name, now));
  if (!is_newest) return absl::OkStatus();
  PlanHead merged = records_.head();
  merged.version = Next(merged.version);
  merged.gaps[position].merged = plan.version();
  PlanEdit edit{
      .cause = absl::StrCat("plan ", ToInt(plan.version()), " of node ", name, " is merged"),
      .at = now};
  edit.jump = std::move(merged);
  return CommitPlan(std::move(edit));
}

absl::Status Coordinator::CheckSameTables(const Plan& plan, const std::string& name) const {
  for (const TablePlan& theirs : plan.tables()) {
    const TablePlan* const ours = plan_->FindTable(theirs.spec.id);
    if (ours == nullptr || IsSameTable(ours->spec, theirs.spec)) continue;
    return absl::DataLossError(absl::StrCat(
        "table id ", ToInt(theirs.spec.id), " is table ", theirs.spec.name, " on node ", name,
        " at plan ", ToInt(plan.version()), ", and table ", ours->spec.name,
        " here: the state has gone back in time while the node was away; see docs/runbook.md, "
        "restore"));
  }
  return absl::OkStatus();
}

// Only numbers in gaps count: the others were known here, and are gone.
absl::Status Coordinator::MergeNodes(const Plan& plan, const std::string& name, absl::Time now) {
  for (const NodeSpec& node : plan.nodes()) {
    const bool is_forgotten = std::ranges::any_of(
        records_.head().gaps, [&node](const NumberGap& gap) { return gap.Has(node.id); });
    if (!is_forgotten || plan_->FindNode(node.id) != nullptr) continue;
    if (const NodeSpec* const other = plan_->FindNode(node.name)) {
      return absl::DataLossError(
          absl::StrCat("node ", node.name, " has the id ", ToInt(node.id), " by plan ",
                       ToInt(plan.version()), " of node ", name, ", and ", ToInt(other->id),
                       " here: it joined a second time after "
                       "the state had gone back in time; see docs/runbook.md, restore"));
    }
    PlanEdit edit{
        .cause = absl::StrCat("node ", node.name, " was forgotten, and is known by node ", name),
        .at = now};
    edit.node = node;
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
    membership_.Expect(node, now);
  }
  return absl::OkStatus();
}

// Nodes never go back to members that were changed.
absl::Status Coordinator::MergeSteps(const Plan& plan, const std::string& name, absl::Time now) {
  const PlanPtr before = plan_;
  for (const TablePlan& ours : before->tables()) {
    const TablePlan* const theirs = plan.FindTable(ours.spec.id);
    if (theirs == nullptr || theirs->steps.version <= ours.steps.version) continue;
    PlanEdit edit{.tables = {ours},
                  .cause = absl::StrCat("members of table ", ours.spec.name, " as in plan ",
                                        ToInt(plan.version()), " of node ", name),
                  .at = now};
    edit.tables.front().steps = theirs->steps;
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::MergeForgotten(const Plan& plan, const NumberGap& gap,
                                         const std::string& name, absl::Time now) {
  const PlanPtr before = plan_;
  for (const TablePlan& ours : before->tables()) {
    if (ours.aside || ours.spec.id >= gap.table_begin) continue;
    const TablePlan* const theirs = plan.FindTable(ours.spec.id);
    PlanEdit edit{.cause = "", .at = now};
    if (theirs == nullptr) {
      edit.drop_tables = {ours.spec.id};
      edit.pending_done = IsPending(ours);
      edit.cause = absl::StrCat("table ", ours.spec.name, " was dropped before plan ",
                                ToInt(plan.version()), " of node ", name);
      if (!CheckNotMoving(ours).ok()) jobs_->Abandon("a table that it moves was dropped", now);
    } else {
      TablePlan& table = edit.tables.emplace_back(ours);
      table.spec = theirs->spec;
      if (TraitsOf(ours.sharding).has_copies) table.replicas = theirs->replicas;
      edit.pending_done = IsPending(ours);  // A newer plan has it: its creation was completed.
      if (table == ours && !edit.pending_done) continue;
      edit.cause = absl::StrCat("table ", ours.spec.name, " as in plan ", ToInt(plan.version()),
                                " of node ", name);
    }
    has_dropped_units_ = true;
    LogError("coordinator", "a forgotten change is made again: ", edit.cause);
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::PutTablesAside(const Plan& plan, const std::string& name,
                                         absl::Time now) {
  for (const TablePlan& theirs : plan.tables()) {
    const TableId id = theirs.spec.id;
    if (plan_->FindTable(id) != nullptr) continue;
    const bool is_forgotten = std::ranges::any_of(records_.head().gaps, [&](const NumberGap& gap) {
      return gap.Has(id) && gap.merged < plan.version();
    });
    if (!is_forgotten) continue;  // The table was dropped.
    PlanEdit edit{.cause = absl::StrCat("table ", theirs.spec.name, " (id ", ToInt(id),
                                        ") of node ", name, " is kept aside"),
                  .at = now};
    edit.tables.push_back(theirs);
    edit.tables.front().aside = true;
    LogError("coordinator", "a table that the state has forgotten is kept aside, adopt or drop it ",
             "name=", theirs.spec.name, " id=", ToInt(id), " node=", name);
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  }
  return absl::OkStatus();
}

std::vector<std::string> Coordinator::NodesNotHeard() const {
  std::vector<std::string> names;
  for (const NodeSpec& node : plan_->nodes()) {
    if (!heard_.contains(node.id) && !IsForgotten(node.id)) names.push_back(node.name);
  }
  return names;
}

bool Coordinator::HasHeardAll() const {
  return std::ranges::all_of(plan_->nodes(), [this](const NodeSpec& node) {
    return heard_.contains(node.id) || IsForgotten(node.id);
  });
}

absl::Status Coordinator::MayGiveNumbers(absl::Time now) {
  if (has_skipped_ || HasHeardAll()) {
    has_given_ = true;
    return absl::OkStatus();
  }
  const std::string names = absl::StrJoin(NodesNotHeard(), ", ");
  if (now < wait_for_nodes_until_) {
    return absl::UnavailableError(absl::StrCat(
        "the coordinator has just started and changes nothing before these nodes "
        "were heard: ",
        names, "; try again in ",
        absl::FormatDuration(absl::Ceil(wait_for_nodes_until_ - now, absl::Milliseconds(100)))));
  }
  PlanHead next = records_.head();
  next.version = PlanVersion{ToInt(next.version) + kSkipped};
  next.next_table_id += kSkipped;
  next.next_node_id += kSkipped;
  LogWarning("coordinator",
             "nodes were not heard since the start: numbers that they may have seen are skipped "
             "nodes=",
             names, " plan_next=", ToInt(next.version), " table_next=", next.next_table_id);
  EMBLA_RETURN_IF_ERROR(
      Jump(std::move(next), absl::StrCat("numbers skipped, not heard: ", names), now));
  has_skipped_ = true;
  has_given_ = true;
  BeginGrace(now);
  return absl::OkStatus();
}

// A creation that was pending when the state was copied may be long over: its nodes say so soon.
void Coordinator::BeginGrace(absl::Time now) {
  if (pending_grace_ == absl::InfinitePast()) pending_grace_ = now + options_.dead_after;
}

absl::Status Coordinator::HearUnits(NodeId node, const NodeRegistration& registration,
                                    absl::Time now) {
  const std::uint64_t raised = settler_.raised_count();
  EMBLA_RETURN_IF_ERROR(settler_.Hear(node, registration.units, now));
  if (std::ranges::all_of(plan_->nodes(),
                          [this](const NodeSpec& spec) { return settler_.HasHeard(spec.id); })) {
    BeginGrace(now);
    EMBLA_RETURN_IF_ERROR(settler_.EndForgottenMoves(now));
  }
  if (settler_.raised_count() == raised) return absl::OkStatus();
  // Clients may have seen the plans of these moves, though no node has kept one.
  if (!has_jumped_) {
    EMBLA_RETURN_IF_ERROR(
        JumpBeyond({}, absl::StrCat("node ", registration.name, ", by its units,"), now));
  }
  if (jobs_->running() == nullptr) return absl::OkStatus();
  // The job goes on from the records as they are now.
  jobs_ = std::make_unique<MoveJobs>(store_, static_cast<MoveCluster&>(*this));
  return jobs_->Load(now);
}

absl::StatusOr<TableChange> Coordinator::AdoptTable(std::string_view name, TableId id,
                                                    absl::Time now) {
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  EMBLA_ASSIGN_OR_RETURN(const TablePlan table, FindAside(name, id));
  if (const TablePlan* const served = plan_->FindTable(table.spec.name)) {
    return absl::AlreadyExistsError(absl::StrCat("table ", served->spec.name, " (id ",
                                                 ToInt(served->spec.id),
                                                 ") is served; drop it first"));
  }
  PlanEdit edit{
      .cause = absl::StrCat("table ", table.spec.name, " (id ", ToInt(table.spec.id), ") adopted"),
      .at = now};
  edit.tables.push_back(table);
  edit.tables.front().aside = false;
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  LogInfo("coordinator", "table adopted name=", table.spec.name, " id=", ToInt(table.spec.id));
  return TableChange{*plan_->FindTable(table.spec.id), plan_->version()};
}

absl::StatusOr<PlanVersion> Coordinator::DropAside(std::string_view name, TableId id,
                                                   absl::Time now) {
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  EMBLA_ASSIGN_OR_RETURN(const TablePlan table, FindAside(name, id));
  EMBLA_RETURN_IF_ERROR(CheckNotMoving(table));
  PlanEdit edit{.cause = absl::StrCat("table ", table.spec.name, " (id ", ToInt(table.spec.id),
                                      "), kept aside, dropped"),
                .at = now};
  edit.drop_tables = {table.spec.id};
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  has_dropped_units_ = true;
  LogInfo("coordinator", "table dropped name=", table.spec.name, " id=", ToInt(table.spec.id));
  return plan_->version();
}

absl::StatusOr<TablePlan> Coordinator::FindAside(std::string_view name, TableId id) const {
  std::vector<std::string> found;
  const TablePlan* last = nullptr;
  for (const TablePlan& table : plan_->tables()) {
    const bool is_named = name.empty() || table.spec.name == name;
    if (!table.aside || !is_named || (id != TableId{} && table.spec.id != id)) continue;
    found.push_back(absl::StrCat(ToInt(table.spec.id)));
    last = &table;
  }
  const std::string what =
      absl::StrCat(name.empty() ? "" : " named ", ToAbsl(name.substr(0, 128)),
                   id == TableId{} ? "" : absl::StrCat(" with id ", ToInt(id)));
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no table", what, " is kept aside"));
  }
  if (found.size() == 1) return *last;
  return absl::InvalidArgumentError(absl::StrCat("several tables", what, " are kept aside, ids ",
                                                 absl::StrJoin(found, ", "), "; say which"));
}

absl::Status Coordinator::DropLeftovers(std::string_view table, const std::string& node) {
  const TablePlan* const plan = plan_->FindTable(table);
  if (plan == nullptr) return NoSuchTable(table);
  const NodeSpec* const spec = plan_->FindNode(node);
  if (spec == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no node \"", node.substr(0, 128), "\""));
  }
  if (!IsLive(spec->id)) {
    return absl::UnavailableError(
        absl::StrCat("node ", node, " at ", spec->address, " is down; start it and try again"));
  }
  LogInfo("coordinator", "rows that are kept aside are given up table=", plan->spec.name,
          " node=", node);
  settler_.DropAside(spec->id, plan->spec.id);
  return absl::OkStatus();
}

absl::Status Coordinator::NoSuchTable(std::string_view name) const {
  if (const TablePlan* const aside = plan_->FindAside(name)) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", aside->spec.name, " (id ", ToInt(aside->spec.id),
                     ") is kept aside; embla table adopt ", aside->spec.name, " serves it again"));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no table \"", ToAbsl(name.substr(0, 128)), "\""));
}

}  // namespace embla
