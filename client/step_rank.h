// This client as a rank of tables with synchronous steps (docs/synchronous_steps.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/plan/step_members.h"

namespace embla::client {

// The first step that every step since has `rank` as a member, and the steps to come, as far as the
// plan knows; none: it is no member, or is about to be none.
std::optional<std::uint64_t> MemberSince(const StepPlan& plan, Rank rank);

// Names the members of the next steps, and the ranks below `ranks` that are none: for messages.
std::string DescribeMembers(const StepPlan& plan, std::uint32_t ranks);

// Says of which contributions the rank's session before may have been counted.
//
// Thread safety: every method may be called from any thread, once SetTakenOver is over.
class StepRank {
 public:
  // The session has taken the place of another one of the same trainer.
  void SetTakenOver() { is_taken_over_ = true; }
  bool is_taken_over() const { return is_taken_over_; }

  // StepClaim::resumes. The answer for a step stays the same.
  bool Resumes(TableId table, std::uint64_t step);

 private:
  bool is_taken_over_ = false;

  Mutex mu_;
  std::map<TableId, std::uint64_t> first_steps_ ABSL_GUARDED_BY(mu_);  // This session's.
};

}  // namespace embla::client
