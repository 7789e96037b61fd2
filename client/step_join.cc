#include "client/step_join.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/retry.h"
#include "client/route/error_details.h"
#include "client/step_rank.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

// The coordinator forgets a wish in seconds, or when it is started again.
constexpr absl::Duration kWishInterval = absl::Seconds(1);
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::vector<std::uint64_t>> StepJoin::Run(const std::vector<std::string>& tables,
                                                         absl::Time deadline) {
  absl::Time next_wish = timer_.Now();
  absl::Status said = absl::UnavailableError("it was not asked");
  while (true) {
    std::vector<TableId> ids;
    std::string lacking;
    EMBLA_ASSIGN_OR_RETURN(std::vector<std::uint64_t> since, Look(tables, ids, lacking));
    if (said.ok() && lacking.empty()) return since;
    const absl::Time now = timer_.Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", ToInt(member_.rank), " could not join",
                       lacking.empty() ? "" : absl::StrCat(" ", lacking),
                       said.ok() ? "" : absl::StrCat("; the coordinator: ", Message(said))));
    }
    if (now >= next_wish) {
      const absl::Time attempt = std::min(deadline, now + kWishInterval);
      said = coordinator_.JoinSteps(member_.session, member_.proof, ids, attempt);
      // FailedPrecondition: another session has the rank, but may be closed soon.
      const bool passes = RemedyFor(said) != Remedy::kGiveUp && !absl::IsNotFound(said);
      if (!said.ok() && !passes) return said;
      // Without an answer there is no newer plan either.
      if (said.ok()) (void)plans_.Refresh(attempt);
      next_wish = now + kWishInterval;
    } else {
      Wait(std::min(kLookInterval, deadline - now));
    }
  }
}

absl::StatusOr<std::vector<std::uint64_t>> StepJoin::Look(const std::vector<std::string>& tables,
                                                          std::vector<TableId>& ids,
                                                          std::string& lacking) {
  const RoutesPtr routes = plans_.routes();
  std::vector<std::uint64_t> since;
  for (const std::string& name : tables) {
    const TablePlan* const table = routes->plan().FindTable(std::string_view(name));
    if (table == nullptr) return routes->NoSuchTable(name);
    if (!table->spec.sync.has_value()) {
      return AboutTable(absl::InvalidArgumentError(
                            absl::StrCat("table ", name, " has no synchronous steps to join")),
                        name);
    }
    ids.push_back(table->spec.id);
    const std::optional<std::uint64_t> first = MemberSince(table->steps, member_.rank);
    since.push_back(first.value_or(0));
    if (first.has_value()) continue;
    absl::StrAppend(&lacking, lacking.empty() ? "" : ", ", "table ", name, " (",
                    DescribeMembers(table->steps, member_.ranks), ")");
  }
  return since;
}

void StepJoin::Wait(absl::Duration time) {
  Mutex mu;
  CondVar changed;
  bool is_over = false;
  timer_.At(timer_.Now() + time, [&] {
    MutexLock lock(mu);
    is_over = true;
    changed.NotifyAll();
  });
  MutexLock lock(mu);
  while (!is_over) changed.Wait(mu);
}

}  // namespace embla::client
