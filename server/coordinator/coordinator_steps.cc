// Members of tables with synchronous steps: ranks that join, leave, or are silent
// (docs/synchronous_steps.md, "Members").
//
// A change of a table's members is two versions of the plan. Opened tells all nodes to make no
// step; each says with its heartbeats that it has heard of the change, and how far it has got. When
// all have, Decided is made from what they said. Changes of one table go one after the other. The
// open change is in the plan and the answers are in heartbeats, so a coordinator that restarts in
// between goes on.
//
// Reasons for a change, in order:
//   leave    a session that is closed has claimed the rank, and no next session of its trainer is
//            to have it. How the session was closed does not matter: by its client, by its lease.
//   silence  a live node reports that contributions have waited for a rank for step_timeout
//   join     JoinSteps. Wishes are in memory: a client repeats its wish until the plan has its
//            rank, so a coordinator that restarts hears them again. A table without members, or
//            whose steps have failed, waits until all ranks of its trainers have asked, so that the
//            first step has them all.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/plan/rank_runs.h"
#include "server/coordinator/coordinator.h"

namespace embla {
namespace {

// Each has a record in memory and in the store.
constexpr std::size_t kRankedSessionsMax = 65536;
constexpr std::size_t kTablesAskedMax = 16384;

// Whether a step that units may still have to make waits for `rank`.
bool IsAwaited(const StepPlan& steps, Rank rank) {
  return std::ranges::any_of(steps.members,
                             [&](const StepMembers& entry) { return entry.Awaits(rank); });
}

// Whether `rank` contributes to the steps to come, as far as is known.
bool IsMember(const StepPlan& steps, Rank rank) {
  if (steps.members.empty() || !steps.members.back().Awaits(rank)) return false;
  if (!steps.open.has_value()) return true;
  switch (steps.open->kind) {
    case MemberChange::Kind::kJoin:
      return true;
    case MemberChange::Kind::kClose:
      return std::ranges::count(steps.open->ranks, rank) == 0;
    case MemberChange::Kind::kFail:
      return false;
  }
  return false;
}

const StepReport* ReportOf(const NodeView& node, TableId table) {
  const auto found = std::ranges::lower_bound(node.steps, table, {}, &StepReport::table);
  return found == node.steps.end() || found->table != table ? nullptr : &*found;
}

// The ranks that `report` lacks and the step still waits for.
std::vector<Rank> SilentBy(const StepReport& report, const StepPlan& steps) {
  std::vector<Rank> silent;
  // A change that was decided meanwhile may have settled it.
  if (report.change != steps.changes) return silent;
  const StepMembers* const members = steps.At(report.step);
  for (const Rank rank : report.lacks) {
    if (members != nullptr && members->Awaits(rank)) silent.push_back(rank);
  }
  return silent;
}

std::string WordsOf(const MemberChange& change) {
  const std::string ranks =
      absl::StrCat(change.ranks.size() == 1 ? "rank " : "ranks ", RankRuns(change.ranks));
  switch (change.kind) {
    case MemberChange::Kind::kJoin:
      return absl::StrCat(ranks, " to join");
    case MemberChange::Kind::kClose:
      return absl::StrCat(ranks, " to be left out");
    case MemberChange::Kind::kFail:
      return absl::StrCat("steps to fail without ", ranks);
  }
  return ranks;
}

}  // namespace

absl::Status Coordinator::CheckRank(const SessionRequest& request) {
  if (!request.rank.has_value() && request.ranks == 0) return absl::OkStatus();
  if (request.rank.has_value() && ToInt(*request.rank) < request.ranks &&
      request.ranks <= kRanksMax) {
    return absl::OkStatus();
  }
  const std::string rank =
      request.rank.has_value() ? absl::StrCat("rank ", ToInt(*request.rank)) : "no rank";
  return absl::InvalidArgumentError(absl::StrCat(
      "a session of ", rank, " and ", request.ranks,
      " ranks: state both or none, a rank below ranks, and at most ", kRanksMax, " ranks"));
}

absl::Status Coordinator::DeclareRank(SessionId session, const SessionRequest& request) {
  if (!request.rank.has_value()) return absl::OkStatus();
  if (ranks_.all().size() >= kRankedSessionsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ranks_.all().size(), " sessions with ranks are open, or their ranks have not left yet"));
  }
  RankedSession mine{.rank = *request.rank, .ranks = request.ranks, .trainer = request.trainer};
  SessionRanks::Changes changes;
  for (const auto& [other, theirs] : ranks_.all()) {
    if (!theirs.is_replaced || theirs.trainer != mine.trainer || theirs.rank != mine.rank) continue;
    mine.tables.insert(theirs.tables.begin(), theirs.tables.end());
    changes[other] = std::nullopt;
  }
  changes[session] = std::move(mine);
  return ranks_.Write(store_, changes);
}

absl::Status Coordinator::KeepRank(SessionId session, const SessionRequest& request) {
  const RankedSession* const before = ranks_.Find(session);
  if (before == nullptr || before->rank != request.rank) return absl::OkStatus();
  RankedSession kept = *before;
  kept.is_replaced = true;
  return ranks_.Write(store_, {{session, std::move(kept)}});
}

absl::StatusOr<SessionRanks::Changes> Coordinator::ClaimsOf(SessionId session,
                                                            const std::set<TableId>& tables) const {
  const RankedSession* const known = ranks_.Find(session);
  if (known == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", ToInt(session),
                     " has declared no rank: state rank and ranks when it is opened"));
  }
  SessionRanks::Changes changes;
  RankedSession mine = *known;
  std::erase_if(mine.tables, [this](TableId id) { return plan_->FindTable(id) == nullptr; });
  for (const TableId id : tables) {
    const TablePlan* const table = plan_->FindTable(id);
    if (table == nullptr || table->aside) {
      return absl::NotFoundError(absl::StrCat("there is no table with id ", ToInt(id)));
    }
    if (!table->spec.sync.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("table ", table->spec.name, " has no synchronous steps"));
    }
    mine.tables.insert(id);
    const SessionId holder = ranks_.HolderOf(id, mine.rank).value_or(session);
    if (holder == session) continue;
    const RankedSession& theirs = *ranks_.Find(holder);
    if (!sessions_.IsClosed(holder)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", ToInt(mine.rank), " of table ", table->spec.name, " is session ", ToInt(holder),
          "'s, of ", theirs.trainer.empty() ? "a client without a trainer's name" : "trainer ",
          theirs.trainer, ", until that one is closed"));
    }
    changes.try_emplace(holder, theirs).first->second->tables.erase(id);
  }
  if (mine != *known) changes[session] = std::move(mine);
  return changes;
}

absl::Status Coordinator::JoinSteps(SessionId session, const SessionProof& proof,
                                    std::span<const TableId> tables, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(CheckProof(session, proof));
  if (sessions_.IsClosed(session)) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", ToInt(session), " is closed; connect again"));
  }
  if (tables.size() > kTablesAskedMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JoinSteps names ", tables.size(), " tables, at most ", kTablesAskedMax, " at once"));
  }
  HearSession(session, 0);
  const std::set<TableId> asked(tables.begin(), tables.end());
  EMBLA_ASSIGN_OR_RETURN(const SessionRanks::Changes changes, ClaimsOf(session, asked));
  EMBLA_RETURN_IF_ERROR(ranks_.Write(store_, changes));
  const Rank rank = ranks_.Find(session)->rank;
  for (const TableId id : asked) {
    if (!IsMember(plan_->FindTable(id)->steps, rank)) wishes_[id][rank] = session;
    AdvanceSteps(id, now);
  }
  return absl::OkStatus();
}

std::optional<MemberChange> Coordinator::NextChange(const TablePlan& table) const {
  MemberChange change;
  change.ranks = LeavingOf(table);
  if (!change.ranks.empty()) return change;
  change = SilenceOf(table);
  if (!change.ranks.empty()) return change;
  change = {.kind = MemberChange::Kind::kJoin, .ranks = JoiningOf(table)};
  if (!change.ranks.empty()) return change;
  return std::nullopt;
}

std::vector<Rank> Coordinator::LeavingOf(const TablePlan& table) const {
  std::vector<Rank> leaving;
  const auto left = left_.find(table.spec.id);
  if (left == left_.end()) return leaving;
  for (const Rank rank : left->second) {
    // Another session may have claimed it meanwhile.
    const std::optional<SessionId> holder = ranks_.HolderOf(table.spec.id, rank);
    if (holder && HasLeft(*holder) && IsAwaited(table.steps, rank)) leaving.push_back(rank);
  }
  return leaving;
}

bool Coordinator::HasLeft(SessionId session) const {
  return sessions_.IsClosed(session) && !ranks_.Find(session)->is_replaced;
}

// Ranks that are silent at the lowest step; others are missed at a later one, and again then.
MemberChange Coordinator::SilenceOf(const TablePlan& table) const {
  const bool fails = table.spec.sync->on_silence == OnSilence::kFail;
  MemberChange change{.kind = fails ? MemberChange::Kind::kFail : MemberChange::Kind::kClose};
  std::set<Rank> silent;
  for (const NodeSpec& spec : plan_->nodes()) {
    const NodeView& node = *membership_.Find(spec.id);
    const StepReport* const report = node.live() ? ReportOf(node, table.spec.id) : nullptr;
    if (report == nullptr) continue;
    const std::vector<Rank> lacks = SilentBy(*report, table.steps);
    if (lacks.empty() || (!silent.empty() && report->step > change.step)) continue;
    if (report->step != change.step) silent.clear();
    change.step = report->step;
    silent.insert(lacks.begin(), lacks.end());
  }
  change.ranks.assign(silent.begin(), silent.end());
  return change;
}

std::vector<Rank> Coordinator::JoiningOf(const TablePlan& table) const {
  std::vector<Rank> joining;
  const auto wishes = wishes_.find(table.spec.id);
  if (wishes == wishes_.end()) return joining;
  std::map<std::uint32_t, std::uint32_t> asked;  // By how many ranks they say there are.
  for (const auto& [rank, session] : wishes->second) {
    if (IsMember(table.steps, rank)) continue;
    joining.push_back(rank);
    ++asked[ranks_.Find(session)->ranks];
  }
  const bool has_members =
      !table.steps.members.empty() && !table.steps.members.back().ranks.empty();
  const bool all_have_asked =
      std::ranges::any_of(asked, [](const auto& count) { return count.second == count.first; });
  if (!has_members && !all_have_asked) joining.clear();
  return joining;
}

std::optional<std::uint64_t> Coordinator::NextStepOf(const TablePlan& table) const {
  const std::set<NodeId> holders = HoldersOf(table);
  std::uint64_t next = 0;
  for (const NodeSpec& spec : plan_->nodes()) {
    const NodeView& node = *membership_.Find(spec.id);
    const StepReport* const report = ReportOf(node, table.spec.id);
    // Also of a node that has given its units away and was stopped then.
    if (report != nullptr) next = std::max(next, report->first_unmade);
    if (IsForgotten(spec.id) || (!node.live() && !holders.contains(spec.id))) continue;
    if (report == nullptr || report->change != table.steps.changes) return std::nullopt;
  }
  return next;
}

void Coordinator::AdvanceSteps(TableId id, absl::Time now) {
  DropWishes(id);
  const PlanPtr before = plan_;  // MayGiveNumbers may make a newer one, with the same tables.
  const TablePlan* const table = before->FindTable(id);
  if (table == nullptr || !table->spec.sync.has_value() || table->aside || IsPending(*table)) {
    return;
  }
  std::optional<MemberChange> change;
  std::optional<std::uint64_t> next_step;
  if (table->steps.open.has_value()) {
    next_step = NextStepOf(*table);
  } else {
    change = NextChange(*table);
  }
  if ((!change && !next_step) || !MayGiveNumbers(now).ok()) return;
  const PlanVersion version{ToInt(plan_->version()) + 1};
  PlanEdit edit{.tables = {*table}, .at = now};
  StepPlan& steps = edit.tables.front().steps;
  if (change) {
    absl::StatusOr<StepPlan> opened = Opened(table->steps, *change, version);
    if (!opened.ok()) {
      LogError("coordinator", "a change of members is none: ", opened.status().message());
      return;
    }
    steps = *std::move(opened);
    edit.cause = absl::StrCat("table ", table->spec.name, ": ", WordsOf(*change));
  } else {
    steps = Decided(table->steps, *next_step, version);
    edit.cause = absl::StrCat("table ", table->spec.name, ": ", WordsOf(*table->steps.open),
                              ", decided at step ", *next_step);
  }
  LogInfo("coordinator", edit.cause, " change=", steps.changes, " plan_version=", ToInt(version));
  // An error is the store's; it is tried again at the next tick.
  (void)CommitPlan(std::move(edit));
}

void Coordinator::AdvanceStepsBy(std::span<const StepReport> reports, absl::Time now) {
  for (const StepReport& report : reports) {
    const TablePlan* const table = plan_->FindTable(report.table);
    if (table == nullptr) continue;
    if (table->steps.open.has_value() || !report.lacks.empty()) AdvanceSteps(report.table, now);
  }
}

void Coordinator::AdvanceAllSteps(absl::Time now) {
  TidyRanks();
  left_.clear();
  for (const auto& [session, known] : ranks_.all()) {
    if (!HasLeft(session)) continue;
    for (const TableId table : known.tables) left_[table].insert(known.rank);
  }
  std::set<TableId> due;
  for (const TablePlan& table : plan_->tables()) {
    if (table.steps.open.has_value()) due.insert(table.spec.id);
  }
  for (const auto& [table, ranks] : left_) due.insert(table);
  for (const auto& [table, wishes] : wishes_) due.insert(table);
  for (const NodeSpec& node : plan_->nodes()) {
    for (const StepReport& report : membership_.Find(node.id)->steps) {
      if (!report.lacks.empty()) due.insert(report.table);
    }
  }
  for (const TableId table : due) AdvanceSteps(table, now);
}

void Coordinator::DropWishes(TableId id) {
  const auto wishes = wishes_.find(id);
  if (wishes == wishes_.end()) return;
  const TablePlan* const table = plan_->FindTable(id);
  std::erase_if(wishes->second, [&](const auto& wish) {
    return table == nullptr || sessions_.IsClosed(wish.second) ||
           ranks_.Find(wish.second) == nullptr || IsMember(table->steps, wish.first);
  });
  if (wishes->second.empty()) wishes_.erase(wishes);
}

void Coordinator::TidyRanks() {
  SessionRanks::Changes changes;
  for (const auto& [session, known] : ranks_.all()) {
    if (!sessions_.IsClosed(session)) continue;
    RankedSession left = known;
    std::erase_if(left.tables, [&](TableId id) {
      const TablePlan* const table = plan_->FindTable(id);
      if (table == nullptr) return true;
      const std::optional<MemberChange>& open = table->steps.open;
      const bool joins = open.has_value() && open->kind == MemberChange::Kind::kJoin &&
                         std::ranges::count(open->ranks, known.rank) > 0;
      return !joins && !IsAwaited(table->steps, known.rank);
    });
    if (left == known && !left.tables.empty()) continue;
    changes[session] = std::nullopt;
    if (!left.tables.empty()) changes[session] = std::move(left);
  }
  // An error is the store's; it is tried again at the next tick.
  (void)ranks_.Write(store_, changes);
}

}  // namespace embla
