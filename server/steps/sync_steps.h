// A node's part of the synchronous steps of one table: which contributions wait, which units step
// with which of them, who is refused. docs/synchronous_steps.md
//
// A value without threads, clock or rows; its owner executes what it decides. Where a request is to
// be refused or taken, and where units step, the owner first asks (Decide, Ready), then writes its
// record, then says that it was done (Take, Commit): nothing has to be undone.
//
// A contribution is a request of (session, seq), or several with disjoint units. A request waits
// for all units of its claim, or is refused at once and sent again in pieces: so nobody is told
// late that a unit is elsewhere because another one of the same request waits for a slow rank. Each
// request has a ticket, under which its owner keeps the gradients until the ticket is answered. For
// every request that waits:
//   waits    units of its claim that have not stepped; never empty
//   carries  those of them that step with this request's gradients; the others are carried by
//            another request of the same contribution, which this one repeats
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/step_members.h"
#include "core/plan/unit_set.h"
#include "server/steps/step_guards.h"

namespace embla {

struct Contribution {
  SessionId session{};
  UpdateSeq seq{};
  std::uint64_t step = 0;
  Rank rank{};
  bool resumes = false;  // The session before may have made the rank's step.
  PlanVersion plan_version{};
  std::optional<float> learning_rate;
  std::size_t bytes = 0;  // Bytes of the request while it waits.
  UnitSet claim;

  bool IsOf(SessionId other, UpdateSeq other_seq) const {
    return session == other && seq == other_seq;
  }
  bool operator==(const Contribution&) const = default;
};

class SyncSteps {
 public:
  using Ticket = std::uint64_t;

  struct Options {
    std::uint64_t steps_ahead_max = 8;  // Beyond the first step that a claimed unit has to make.
  };

  // The fate of the units of a claim. The others are done: they had the contribution before.
  struct Offer {
    UnitSet frozen;
    UnitSet moved;  // Not on this node.
    UnitSet waits;
    UnitSet carries;

    bool refuses() const { return !frozen.empty() || !moved.empty(); }
    bool operator==(const Offer&) const = default;
  };
  struct Answer {
    Ticket ticket = 0;
    absl::Status status;  // OK: all units of the claim have stepped, but for
    UnitSet frozen = {};
    UnitSet moved = {};
    UnitSet again = {};  // and these, which are here: to be sent again, without the others.
  };
  // Units that make a step now, with these contributions, ascending by rank.
  struct Part {
    Rank rank{};
    SessionId session{};
    UpdateSeq seq{};
    Ticket ticket = 0;
    UnitSet units;
    bool operator==(const Part&) const = default;
  };
  struct ReadyStep {
    std::uint64_t step = 0;
    UnitSet units;
    std::vector<Part> parts;
    bool operator==(const ReadyStep&) const = default;
  };
  // Members that units lack for a step while requests wait for these units.
  struct Lack {
    std::uint64_t step = 0;
    std::vector<Rank> ranks;
    bool operator==(const Lack&) const = default;
  };
  struct Waiting {
    Ticket ticket = 0;
    Contribution contribution;
    Offer offer;
    bool operator==(const Waiting&) const = default;
  };

  explicit SyncSteps(const Options& options, const StepGuards& guards = kAllStepGuards)
      : options_(options), guards_(guards) {}

  // Units come with the step that they make next, from a move or a new table, and leave with it.
  // Requires: those that come are not here; those that leave are here, frozen.
  void Add(const UnitSet& units, std::uint64_t next_step);
  void Remove(const UnitSet& units);
  // From now on the units do not step. Answers requests that wait for them.
  std::vector<Answer> Freeze(const UnitSet& units);
  void Unfreeze(const UnitSet& units) { frozen_ = frozen_.Minus(units); }
  // Takes a newer version over, and answers contributions of ranks that are no members any more.
  std::vector<Answer> Follow(const StepPlan& plan);

  // `applied`: the units of the claim whose windows have (session, seq). Errors: InvalidArgument,
  // FailedPrecondition, Unavailable (the sender's plan is newer), ResourceExhausted (too far
  // ahead).
  absl::StatusOr<Offer> Decide(const Contribution& contribution, const UnitSet& applied) const;
  // Takes what Decide has just allowed. The answer, if units are refused, or none has to wait.
  // Requires: no request that waits has the ticket.
  std::optional<Answer> Take(Ticket ticket, const Contribution& contribution, const Offer& offer);

  // The lowest step that units can make now, if there is one; more may follow when it is made.
  std::optional<ReadyStep> Ready() const;
  // The step was made. Answers what waits for nothing any more.
  std::vector<Answer> Commit(const ReadyStep& ready);
  // The step was not made, for `why`: answers its contributions with that, and forgets them.
  std::vector<Answer> Withdraw(const ReadyStep& ready, const absl::Status& why);
  // An earlier process made the step.
  void NoteMade(std::uint64_t step) { first_unmade_ = std::max(first_unmade_, step + 1); }
  // The session is closed: answers what waits of it with PermissionDenied.
  std::vector<Answer> Drop(SessionId session);

  // For the report that a rank is silent: of the lowest step that anything waits for.
  std::optional<Lack> Lacking() const;
  // For the answer to an open change: the first step that no unit has ever made on this node.
  std::uint64_t first_unmade() const { return first_unmade_; }

  const StepPlan& plan() const { return plan_; }
  const std::map<std::uint64_t, UnitSet>& units_by_step() const { return units_by_step_; }
  const UnitSet& frozen() const { return frozen_; }
  UnitSet units() const;
  std::span<const Waiting> waiting() const { return waiting_; }
  std::size_t bytes() const;
  bool operator==(const SyncSteps& other) const;

 private:
  UnitSet Unmade(std::uint64_t step, const UnitSet& units) const;
  absl::Status CheckMadeWith(const Contribution& contribution) const;
  absl::Status CheckMember(const Contribution& contribution) const;
  absl::Status CheckAgainstWaiting(const Contribution& contribution) const;
  UnitSet ClaimedBy(Rank rank, std::uint64_t step, const UnitSet& units) const;
  void Advance(std::uint64_t step, const UnitSet& units);
  void Place(std::uint64_t next_step, const UnitSet& units);
  std::vector<Answer> TakeDone();
  template <typename Goes>
  std::vector<Answer> Refuse(const absl::Status& why, Goes goes);

  Options options_;
  StepGuards guards_;
  StepPlan plan_;
  std::map<std::uint64_t, UnitSet> units_by_step_;  // By the step that they make next; none empty.
  UnitSet frozen_;
  std::uint64_t first_unmade_ = 0;
  std::vector<Waiting> waiting_;  // In the order in which they were taken.
};

}  // namespace embla
