// Makes a session's rank a member of tables' synchronous steps: tells the coordinator so again and
// again, until the plan says it. At least once, as it is the coordinator that knows whether the
// rank is this session's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/plan_keeper.h"
#include "client/transport/coordinator_channel.h"
#include "client/transport/timer.h"

namespace embla::client {

class StepJoin {
 public:
  struct Member {
    SessionId session{};
    SessionProof proof{};
    Rank rank{};
    std::uint32_t ranks = 0;
  };

  // Borrows its arguments; they outlive this object.
  StepJoin(CoordinatorChannel& coordinator, PlanKeeper& plans, Timer& timer, const Member& member)
      : coordinator_(coordinator), plans_(plans), timer_(timer), member_(member) {}

  // The steps since which the rank is a member, by table. Blocks. Errors: NotFound,
  // InvalidArgument (a table without synchronous steps), DeadlineExceeded (says who is missing, or
  // has the rank), and those of the coordinator that do not pass.
  absl::StatusOr<std::vector<std::uint64_t>> Run(const std::vector<std::string>& tables,
                                                 absl::Time deadline);

 private:
  // The plan's answer: empty, if some table does not have the rank; `lacking` says which.
  absl::StatusOr<std::vector<std::uint64_t>> Look(const std::vector<std::string>& tables,
                                                  std::vector<TableId>& ids, std::string& lacking);
  void Wait(absl::Duration time);

  CoordinatorChannel& coordinator_;
  PlanKeeper& plans_;
  Timer& timer_;
  const Member member_;
};

}  // namespace embla::client
