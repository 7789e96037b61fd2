// The conditions that synchronous steps stand on, each by name. docs/synchronous_steps.md says what
// breaks without each of them; tests/model shows it, by taking one away at a time.
//
// Production runs with all of them, always: nothing but the model checker may clear one.
#pragma once

#include <array>
#include <string_view>

namespace embla {

struct StepGuards {
  // A node's steps.
  bool claims_checked = true;   // A unit steps when every member has claimed that very unit.
  bool members_checked = true;  // Contributions of ranks that are no members are refused.
  bool optional_not_waited =
      true;                   // A rank that was closed while a step was made is not waited for.
  bool windows_asked = true;  // A contribution in the unit's window is acknowledged.
  bool resumes_known = true;  // A rank's next session is told that the step has the rank's part.
  // The next session's rank must be one that the step had to wait for,
  bool resumes_need_member = true;
  bool resumes_wait = true;        // and never while a change is open: it may have been closed.
  bool open_change_pauses = true;  // No step is made between a change's two versions.
  bool plan_moves_forward = true;  // An older plan that comes late changes nothing.
  bool freeze_stops_steps = true;  // A frozen unit does not step.
  bool freeze_answers = true;      // Contributions that wait for a frozen unit are told so.

  // Guards of the code that executes them.
  bool ack_waits_for_step = true;    // A contribution is acknowledged when it was stepped,
  bool ack_waits_for_record = true;  // and the step's record is written.
  bool windows_are_whole = true;     // The record enters the windows of units without rows, too.
  bool closed_dropped = true;        // Contributions of a closed session that wait are dropped.
  bool closed_refused = true;        // Later contributions of a closed session are refused.
  bool moved_named_without_rows = true;  // Units that are not here are named to all who claim them.
  bool step_travels = true;              // The cut of a move has the unit's next step,
  bool windows_travel = true;            // and its window.
  bool plan_persisted = true;            // A node's answer to a change waits for the plan's record.

  // The coordinator.
  bool all_nodes_answer = true;       // A change is decided when every node has answered,
  bool answers_outlive_units = true;  // also about steps of units that have left it,
  bool first_behind_steps = true;     // and lies behind every step that was made.
};

inline constexpr StepGuards kAllStepGuards = {};

struct StepGuardName {
  std::string_view name;
  bool StepGuards::*guard;
};

inline constexpr std::array kStepGuardNames = {
    StepGuardName{"claims_checked", &StepGuards::claims_checked},
    StepGuardName{"members_checked", &StepGuards::members_checked},
    StepGuardName{"optional_not_waited", &StepGuards::optional_not_waited},
    StepGuardName{"windows_asked", &StepGuards::windows_asked},
    StepGuardName{"resumes_known", &StepGuards::resumes_known},
    StepGuardName{"resumes_need_member", &StepGuards::resumes_need_member},
    StepGuardName{"resumes_wait", &StepGuards::resumes_wait},
    StepGuardName{"open_change_pauses", &StepGuards::open_change_pauses},
    StepGuardName{"plan_moves_forward", &StepGuards::plan_moves_forward},
    StepGuardName{"freeze_stops_steps", &StepGuards::freeze_stops_steps},
    StepGuardName{"freeze_answers", &StepGuards::freeze_answers},
    StepGuardName{"ack_waits_for_step", &StepGuards::ack_waits_for_step},
    StepGuardName{"ack_waits_for_record", &StepGuards::ack_waits_for_record},
    StepGuardName{"windows_are_whole", &StepGuards::windows_are_whole},
    StepGuardName{"closed_dropped", &StepGuards::closed_dropped},
    StepGuardName{"closed_refused", &StepGuards::closed_refused},
    StepGuardName{"moved_named_without_rows", &StepGuards::moved_named_without_rows},
    StepGuardName{"step_travels", &StepGuards::step_travels},
    StepGuardName{"windows_travel", &StepGuards::windows_travel},
    StepGuardName{"plan_persisted", &StepGuards::plan_persisted},
    StepGuardName{"all_nodes_answer", &StepGuards::all_nodes_answer},
    StepGuardName{"answers_outlive_units", &StepGuards::answers_outlive_units},
    StepGuardName{"first_behind_steps", &StepGuards::first_behind_steps},
};

}  // namespace embla
