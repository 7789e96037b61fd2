#include "client/step_rank.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace embla::client {

std::optional<std::uint64_t> MemberSince(const StepPlan& plan, Rank rank) {
  if (plan.members.empty() || !plan.members.back().Awaits(rank)) return std::nullopt;
  if (plan.open.has_value() && plan.open->kind != MemberChange::Kind::kJoin &&
      std::ranges::binary_search(plan.open->ranks, rank)) {
    return std::nullopt;
  }
  auto first = plan.members.end();
  while (first != plan.members.begin() && std::prev(first)->Awaits(rank)) --first;
  return first->first_step;
}

std::string DescribeMembers(const StepPlan& plan, std::uint32_t ranks) {
  std::vector<Rank> members;
  if (!plan.members.empty()) members = plan.members.back().ranks;
  std::vector<Rank> missing;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (!std::ranges::binary_search(members, Rank{rank})) missing.push_back(Rank{rank});
  }
  return absl::StrCat(members.empty() ? "it has no members" : "members are ranks ",
                      members.empty() ? "" : ToString(members),
                      missing.empty() ? "" : "; missing are ",
                      missing.empty() ? "" : ToString(missing), " of ", ranks,
                      plan.open.has_value() ? "; a change is under way" : "");
}

bool StepRank::Resumes(TableId table, std::uint64_t step) {
  if (!is_taken_over_) return false;
  MutexLock lock(mu_);
  const std::uint64_t first = first_steps_.try_emplace(table, step).first->second;
  return step < first + StepPlan::kStepsBehindMax;
}

}  // namespace embla::client
