#include "server/steps/sync_steps.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// A rank that is refused reads here what to do next.
constexpr char kJoinAgain[] = ": join again (JoinSteps) and go on with the step that it names";

}  // namespace

void SyncSteps::Place(std::uint64_t next_step, const UnitSet& units) {
  if (!units.empty()) units_by_step_[plan_.NextMade(next_step)].Include(units);
}

void SyncSteps::Add(const UnitSet& units, std::uint64_t next_step) {
  EMBLA_CHECK(!this->units().Meets(units));
  // The steps before were made by whoever had the units, and may be gone without an answer.
  first_unmade_ = std::max(first_unmade_, next_step);
  Place(next_step, units);
}

void SyncSteps::Remove(const UnitSet& units) {
  EMBLA_CHECK(frozen_.Covers(units));
  frozen_ = frozen_.Minus(units);
  for (auto& [step, placed] : units_by_step_) placed = placed.Minus(units);
  std::erase_if(units_by_step_, [](const auto& placed) { return placed.second.empty(); });
}

std::vector<SyncSteps::Answer> SyncSteps::Freeze(const UnitSet& units) {
  frozen_.Include(units);
  if (!guards_.freeze_stops_steps || !guards_.freeze_answers) return {};
  // A contribution goes with all its requests: none waits for what another one carried.
  std::set<std::pair<SessionId, UpdateSeq>> names;
  for (const Waiting& waiting : waiting_) {
    if (!waiting.offer.waits.Meets(units)) continue;
    names.insert({waiting.contribution.session, waiting.contribution.seq});
  }
  std::vector<Answer> answers;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const Contribution& contribution = waiting.contribution;
    if (!names.contains({contribution.session, contribution.seq})) return false;
    const UnitSet& waits = waiting.offer.waits;
    answers.push_back({.ticket = waiting.ticket,
                       .status = absl::OkStatus(),
                       .frozen = waits.And(units),
                       .again = waits.Minus(units)});
    return true;
  });
  return answers;
}

std::vector<SyncSteps::Answer> SyncSteps::Follow(const StepPlan& plan) {
  if (plan.version <= plan_.version && guards_.plan_moves_forward) return {};
  plan_ = plan;
  // Steps that fail are left out.
  for (auto& [step, units] : std::exchange(units_by_step_, {})) Place(step, units);
  return Refuse(
      absl::FailedPreconditionError(absl::StrCat(
          "the rank is no member of the step any more, or the step has failed", kJoinAgain)),
      [&](const Waiting& waiting) { return !CheckMember(waiting.contribution).ok(); });
}

absl::Status SyncSteps::CheckMember(const Contribution& contribution) const {
  const StepMembers* const members = plan_.At(contribution.step);
  if (members != nullptr && members->Has(contribution.rank) && !members->fails()) {
    return absl::OkStatus();
  }
  if (!guards_.members_checked) return absl::OkStatus();
  const std::string what = members != nullptr && members->fails()
                               ? absl::StrCat("step ", contribution.step, " has failed")
                               : absl::StrCat("rank ", ToInt(contribution.rank),
                                              " is no member of step ", contribution.step);
  if (contribution.plan_version > plan_.version) return absl::UnavailableError(what);
  return absl::FailedPreconditionError(absl::StrCat(what, kJoinAgain));
}

absl::Status SyncSteps::CheckAgainstWaiting(const Contribution& contribution) const {
  for (const Waiting& waiting : waiting_) {
    const Contribution& other = waiting.contribution;
    const bool is_named_so = other.IsOf(contribution.session, contribution.seq);
    const bool is_for_this = other.step == contribution.step && other.rank == contribution.rank;
    if (is_named_so && !is_for_this) {
      return absl::InvalidArgumentError(
          absl::StrCat("update ", ToInt(contribution.seq), " is rank ", ToInt(other.rank),
                       "'s contribution to step ", other.step, " and another one"));
    }
    if (is_for_this && !is_named_so) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", ToInt(contribution.rank), " has contributed to step ", contribution.step,
          " by update ", ToInt(other.seq), " of session ", ToInt(other.session)));
    }
    if (other.step == contribution.step && other.learning_rate != contribution.learning_rate) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", ToInt(contribution.rank), " has another learning rate in step ",
                       contribution.step, " than rank ", ToInt(other.rank)));
    }
  }
  return absl::OkStatus();
}

// A step that is over answers OK: it was made with the rank's contribution, by the session before.
// A unit may have come from a node that has heard already how an open change was decided.
absl::Status SyncSteps::CheckMadeWith(const Contribution& contribution) const {
  const StepMembers* const members = plan_.At(contribution.step);
  const bool was_awaited = members != nullptr && members->Awaits(contribution.rank);
  const bool is_over = !contribution.resumes || !guards_.resumes_known;
  if (is_over || (!was_awaited && guards_.resumes_need_member)) {
    const std::uint64_t next_step = units_by_step_.rbegin()->first;
    const StepMembers* const next_members = plan_.At(next_step);
    const bool goes_on = next_members != nullptr && next_members->Has(contribution.rank);
    return absl::FailedPreconditionError(absl::StrCat("step ", contribution.step, " is over, step ",
                                                      next_step, " is next",
                                                      goes_on ? "" : kJoinAgain));
  }
  if (!plan_.open.has_value() || !guards_.resumes_wait) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("step ", contribution.step, " is over, and it is being decided who is in it"));
}

// The part of `units` that has not made `step`.
UnitSet SyncSteps::Unmade(std::uint64_t step, const UnitSet& units) const {
  UnitSet unmade;
  for (const auto& [next_step, placed] : units_by_step_) {
    if (next_step <= step) unmade.Include(placed.And(units));
  }
  return unmade;
}

absl::StatusOr<SyncSteps::Offer> SyncSteps::Decide(const Contribution& contribution,
                                                   const UnitSet& applied) const {
  const UnitSet here = contribution.claim.And(units());
  Offer offer{.frozen = {}, .moved = contribution.claim.Minus(here), .waits = {}, .carries = {}};
  const UnitSet open = guards_.windows_asked ? here.Minus(applied) : here;
  if (open.empty()) return offer;

  const UnitSet unmade = Unmade(contribution.step, open);
  if (unmade != open) EMBLA_RETURN_IF_ERROR(CheckMadeWith(contribution));
  if (unmade.empty()) return offer;
  EMBLA_RETURN_IF_ERROR(CheckMember(contribution));
  EMBLA_RETURN_IF_ERROR(CheckAgainstWaiting(contribution));
  for (const auto& [next_step, placed] : units_by_step_) {
    if (!placed.Meets(unmade)) continue;
    if (contribution.step - next_step <= options_.steps_ahead_max) break;
    return absl::ResourceExhaustedError(absl::StrCat("step ", contribution.step,
                                                     " is too far ahead of step ", next_step,
                                                     ", which is not made yet"));
  }
  if (guards_.freeze_stops_steps && guards_.freeze_answers) offer.frozen = unmade.And(frozen_);
  offer.waits = unmade.Minus(offer.frozen);
  offer.carries = offer.waits;
  for (const Waiting& waiting : waiting_) {
    if (!waiting.contribution.IsOf(contribution.session, contribution.seq)) continue;
    offer.carries = offer.carries.Minus(waiting.offer.carries);
  }
  return offer;
}

std::optional<SyncSteps::Answer> SyncSteps::Take(Ticket ticket, const Contribution& contribution,
                                                 const Offer& offer) {
  if (offer.refuses() || offer.waits.empty()) {
    return Answer{ticket, absl::OkStatus(), offer.frozen, offer.moved, offer.waits};
  }
  waiting_.push_back({ticket, contribution, offer});
  return std::nullopt;
}

// The part of `units` that the rank has claimed for the step.
UnitSet SyncSteps::ClaimedBy(Rank rank, std::uint64_t step, const UnitSet& units) const {
  UnitSet claimed;
  for (const Waiting& waiting : waiting_) {
    const Contribution& contribution = waiting.contribution;
    if (contribution.step != step || contribution.rank != rank) continue;
    if (!guards_.claims_checked) return units;
    claimed.Include(waiting.offer.carries.And(units));
  }
  return claimed;
}

std::optional<SyncSteps::ReadyStep> SyncSteps::Ready() const {
  if (plan_.open.has_value() && guards_.open_change_pauses) return std::nullopt;
  for (const auto& [step, placed] : units_by_step_) {
    const StepMembers* const members = plan_.At(step);
    if (members == nullptr || members->fails()) continue;
    ReadyStep ready{.step = step, .units = placed, .parts = {}};
    if (guards_.freeze_stops_steps) ready.units = ready.units.Minus(frozen_);
    std::vector<Rank> awaited = members->ranks;
    if (!guards_.optional_not_waited) {
      awaited.insert(awaited.end(), members->optional.begin(), members->optional.end());
    }
    for (const Rank rank : awaited) ready.units = ClaimedBy(rank, step, ready.units);
    if (ready.units.empty()) continue;
    for (const Waiting& waiting : waiting_) {
      const Contribution& contribution = waiting.contribution;
      if (contribution.step != step) continue;
      UnitSet units = waiting.offer.carries.And(ready.units);
      if (units.empty()) continue;
      ready.parts.push_back({contribution.rank, contribution.session, contribution.seq,
                             waiting.ticket, std::move(units)});
    }
    std::stable_sort(ready.parts.begin(), ready.parts.end(),
                     [](const Part& a, const Part& b) { return a.rank < b.rank; });
    return ready;
  }
  return std::nullopt;
}

void SyncSteps::Advance(std::uint64_t step, const UnitSet& units) {
  UnitSet& placed = units_by_step_[step];
  EMBLA_CHECK(placed.Covers(units));
  placed = placed.Minus(units);
  if (placed.empty()) units_by_step_.erase(step);
  Place(step + 1, units);
  first_unmade_ = std::max(first_unmade_, step + 1);
}

std::vector<SyncSteps::Answer> SyncSteps::Commit(const ReadyStep& ready) {
  Advance(ready.step, ready.units);
  for (Waiting& waiting : waiting_) {
    if (waiting.contribution.step != ready.step) continue;
    waiting.offer.waits = waiting.offer.waits.Minus(ready.units);
    waiting.offer.carries = waiting.offer.carries.Minus(ready.units);
  }
  return TakeDone();
}

std::vector<SyncSteps::Answer> SyncSteps::TakeDone() {
  std::vector<Answer> answers;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!waiting.offer.waits.empty()) return false;
    answers.push_back({.ticket = waiting.ticket, .status = absl::OkStatus()});
    return true;
  });
  return answers;
}

template <typename Goes>
std::vector<SyncSteps::Answer> SyncSteps::Refuse(const absl::Status& why, Goes goes) {
  std::vector<Answer> answers;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!goes(waiting)) return false;
    answers.push_back({.ticket = waiting.ticket, .status = why});
    return true;
  });
  return answers;
}

// A contribution goes with all its requests: none waits for what another one carried.
std::vector<SyncSteps::Answer> SyncSteps::Withdraw(const ReadyStep& ready,
                                                   const absl::Status& why) {
  return Refuse(why, [&](const Waiting& waiting) {
    return std::any_of(ready.parts.begin(), ready.parts.end(), [&](const Part& part) {
      return waiting.contribution.IsOf(part.session, part.seq);
    });
  });
}

std::vector<SyncSteps::Answer> SyncSteps::Drop(SessionId session) {
  return Refuse(absl::PermissionDeniedError("the session is closed"),
                [&](const Waiting& waiting) { return waiting.contribution.session == session; });
}

std::optional<SyncSteps::Lack> SyncSteps::Lacking() const {
  for (const auto& [step, placed] : units_by_step_) {
    const bool is_awaited = std::any_of(
        waiting_.begin(), waiting_.end(),
        [&, &units = placed](const Waiting& waiting) { return waiting.offer.waits.Meets(units); });
    const StepMembers* const members = plan_.At(step);
    if (!is_awaited || members == nullptr) continue;
    Lack lack{.step = step, .ranks = {}};
    const UnitSet units = placed.Minus(frozen_);
    for (const Rank rank : members->ranks) {
      if (ClaimedBy(rank, step, units) != units) lack.ranks.push_back(rank);
    }
    if (!lack.ranks.empty()) return lack;
  }
  return std::nullopt;
}

UnitSet SyncSteps::units() const {
  UnitSet all;
  for (const auto& [step, placed] : units_by_step_) all.Include(placed);
  return all;
}

std::size_t SyncSteps::bytes() const {
  std::size_t bytes = 0;
  for (const Waiting& waiting : waiting_) bytes += waiting.contribution.bytes;
  return bytes;
}

bool SyncSteps::operator==(const SyncSteps& other) const {
  return plan_ == other.plan_ && units_by_step_ == other.units_by_step_ &&
         frozen_ == other.frozen_ && first_unmade_ == other.first_unmade_ &&
         waiting_ == other.waiting_;
}

}  // namespace embla
