#include "core/plan/step_members.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"

namespace embla {
namespace {

using Ranks = std::vector<Rank>;

Ranks Union(const Ranks& a, const Ranks& b) {
  Ranks all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}
Ranks Difference(const Ranks& a, const Ranks& b) {
  Ranks left;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(left));
  return left;
}
Ranks Intersection(const Ranks& a, const Ranks& b) {
  Ranks both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

void SortUnique(Ranks& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

// An entry begins at `step` afterwards.
void SplitAt(std::uint64_t step, std::vector<StepMembers>& members) {
  const auto behind = std::find_if(members.begin(), members.end(), [&](const StepMembers& entry) {
    return entry.first_step > step;
  });
  if (behind == members.begin()) {
    members.insert(behind, StepMembers{.first_step = step});
    return;
  }
  if (std::prev(behind)->first_step == step) return;
  StepMembers entry = *std::prev(behind);
  entry.first_step = step;
  members.insert(behind, std::move(entry));
}

// The entry that `change` makes of one: before `first` it lies where some units may have made a
// step and others not. Ranks that go may have left out any of these, not only the one they were
// missed at.
void Change(const MemberChange& change, std::uint64_t first, StepMembers& entry) {
  const bool may_be_made = entry.first_step < first;
  switch (change.kind) {
    case MemberChange::Kind::kJoin:
      if (may_be_made) return;
      entry.ranks = Union(entry.ranks, change.ranks);
      entry.optional = Difference(entry.optional, change.ranks);
      return;
    case MemberChange::Kind::kClose:
    case MemberChange::Kind::kFail:
      break;
  }
  if (may_be_made) {
    entry.optional = Union(entry.optional, Intersection(entry.ranks, change.ranks));
    entry.ranks = Difference(entry.ranks, change.ranks);
  } else if (change.kind == MemberChange::Kind::kClose) {
    entry.optional = Difference(entry.optional, change.ranks);
    entry.ranks = Difference(entry.ranks, change.ranks);
  } else {
    entry.ranks.clear();
    entry.optional.clear();
  }
}

void Tidy(std::vector<StepMembers>& members) {
  const auto says_the_same = [](const StepMembers& a, const StepMembers& b) {
    return a.ranks == b.ranks && a.optional == b.optional;
  };
  members.erase(std::unique(members.begin(), members.end(), says_the_same), members.end());
  const std::uint64_t newest = members.back().first_step;
  while (members.size() > 1 && members[1].first_step + StepPlan::kStepsBehindMax <= newest) {
    members.erase(members.begin());
  }
}

}  // namespace

bool StepMembers::Awaits(Rank rank) const {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

bool StepMembers::Has(Rank rank) const {
  return Awaits(rank) || std::binary_search(optional.begin(), optional.end(), rank);
}

const StepMembers* StepPlan::At(std::uint64_t step) const {
  const StepMembers* at = nullptr;
  for (const StepMembers& entry : members) {
    if (entry.first_step <= step) at = &entry;
  }
  return at;
}

std::uint64_t StepPlan::NextMade(std::uint64_t step) const {
  const StepMembers* const at = At(step);
  if (at != nullptr && !at->fails()) return step;
  for (const StepMembers& entry : members) {
    if (entry.first_step > step && !entry.fails()) return entry.first_step;
  }
  return step;
}

absl::StatusOr<StepPlan> Opened(StepPlan plan, MemberChange change, PlanVersion version) {
  if (plan.open.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("change ", plan.open->number, " of the members is not decided yet"));
  }
  SortUnique(change.ranks);
  if (change.ranks.empty()) return absl::InvalidArgumentError("a change of members has no ranks");
  Ranks awaited;  // A rank may be missed at a step that is not made yet, and have left since.
  for (const StepMembers& entry : plan.members) awaited = Union(awaited, entry.ranks);
  const Ranks now = plan.members.empty() ? Ranks() : plan.members.back().ranks;
  const Ranks joined = Intersection(now, change.ranks);
  const Ranks unknown = Difference(change.ranks, awaited);
  if (change.kind == MemberChange::Kind::kJoin && !joined.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("ranks ", ToString(joined), " have joined"));
  }
  if (change.kind != MemberChange::Kind::kJoin && !unknown.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("ranks ", ToString(unknown), " are no members"));
  }
  change.number = ++plan.changes;
  plan.open = std::move(change);
  plan.version = version;
  return plan;
}

StepPlan Decided(StepPlan plan, std::uint64_t next_step, PlanVersion version) {
  EMBLA_CHECK(plan.open.has_value());
  const MemberChange change = *std::exchange(plan.open, std::nullopt);
  const std::uint64_t first = std::max(change.step, next_step);
  SplitAt(first, plan.members);
  for (StepMembers& entry : plan.members) Change(change, first, entry);
  Tidy(plan.members);
  plan.version = version;
  return plan;
}

std::string ToString(std::span<const Rank> ranks) {
  return absl::StrJoin(ranks, ", ",
                       [](std::string* out, Rank rank) { absl::StrAppend(out, ToInt(rank)); });
}

}  // namespace embla
