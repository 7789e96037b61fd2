// The members of a table's synchronous steps, and how they change.
//
// The coordinator changes members in two versions of the plan: Opened, in which nodes step nothing
// and say how far they have stepped, and Decided, made from their answers. So a change lies behind
// every step that was made. docs/synchronous_steps.md
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace embla {

// From `first_step` on, up to the next entry.
struct StepMembers {
  std::uint64_t first_step = 0;
  std::vector<Rank> ranks = {};     // Ascending; each is waited for.
  std::vector<Rank> optional = {};  // Ascending; counted where they have contributed.

  // Steps without members are not made: contributions are refused, and units go on at the next
  // entry's first step. Steps with optional ranks only are made with what is there.
  bool fails() const { return ranks.empty() && optional.empty(); }
  bool Awaits(Rank rank) const;
  bool Has(Rank rank) const;  // Awaited or optional.
  bool operator==(const StepMembers&) const = default;
};

struct MemberChange {
  enum class Kind : std::uint8_t {
    kJoin = 1,   // `ranks` contribute.
    kClose = 2,  // Steps are made without `ranks`.
    kFail = 3,   // Because `ranks` are silent, steps fail for all until ranks join.
  };

  std::uint64_t number = 0;  // Ascending over this table's changes.
  Kind kind = Kind::kClose;
  // The step at which `ranks` are missed or want to join: nothing changes before it.
  std::uint64_t step = 0;
  std::vector<Rank> ranks = {};
  bool operator==(const MemberChange&) const = default;
};

struct StepPlan {
  // No sender has more steps unacknowledged: entries that end so far behind the newest may go.
  static constexpr std::uint64_t kStepsBehindMax = 256;

  PlanVersion version{};
  std::vector<StepMembers> members = {};  // Ascending by first step.
  std::uint64_t changes = 0;              // The number of the last change, open or decided.
  std::optional<MemberChange> open = {};  // While it is, no node makes a step.

  // Null: before the first entry.
  const StepMembers* At(std::uint64_t step) const;
  // The first step from `step` on that is made, or `step` if none is known yet.
  std::uint64_t NextMade(std::uint64_t step) const;
  bool operator==(const StepPlan&) const = default;
};

// `plan` with a change under way, whose number is set here. `version` is that of the plan that has
// it. FailedPrecondition: another one is; InvalidArgument: no ranks, or ranks that join are members
// of the last entry already, or ranks that go are members of none.
absl::StatusOr<StepPlan> Opened(StepPlan plan, MemberChange change, PlanVersion version);

// Ends the open change. `next_step` is the largest that a node has answered: the first step that
// none of its units has ever made. Requires: every node that has, had or may get units has answered
// to this change.
StepPlan Decided(StepPlan plan, std::uint64_t next_step, PlanVersion version);

std::string ToString(std::span<const Rank> ranks);

}  // namespace embla
