// Nodes that are lost with their directories. The operator's word is written down first: from then
// on a process that comes back with the node's name or directory is refused, nobody waits for the
// node, and a job (move_jobs.h) gives away what it had. The plan loses the node with the job's end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/drained_nodes.h"
#include "server/coordinator/move_jobs.h"

namespace embla {
namespace {

absl::Status CheckDown(const NodeView& node, bool has_slices, absl::Duration dead_after) {
  if (node.live()) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node.spec.name, " is live: `embla node drain ", node.spec.name,
                     " --wait`, stop its process, then forget it"));
  }
  if (node.state == NodeState::kDead || !has_slices) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node.spec.name, " was heard of less than ",
                   absl::FormatDuration(dead_after), " ago; ask again when it is dead"));
}

}  // namespace

absl::StatusOr<ForgottenNode> Coordinator::ForgetNode(const ForgetRequest& request,
                                                      absl::Time now) {
  const NodeSpec* const found = plan_->FindNode(request.node);
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no node \"", request.node.substr(0, 128), "\""));
  }
  const NodeSpec node = *found;
  const NodeView& view = *membership_.Find(node.id);
  EMBLA_RETURN_IF_ERROR(CheckDown(view, MayTakeUpdates(view), options_.dead_after));
  ForgottenNode forgotten{.lost = LostWith(*plan_, node.id), .job = {}};
  if (request.dry_run) return forgotten;
  EMBLA_RETURN_IF_ERROR(CheckLoss(*plan_, node, request.lose_rows));
  const MoveJob* job = jobs_->Forgetting(node.id);
  if (job == nullptr) {
    MoveJob asked{.description = "", .error = "", .runs = {}, .pauses = {}};
    asked.goal =
        ForgetGoal{.node = node.name, .id = ToInt(node.id), .lose_rows = request.lose_rows};
    asked.description = DescriptionOf(*asked.goal);
    EMBLA_ASSIGN_OR_RETURN(
        const JobView queued,
        jobs_->Enqueue(std::move(asked), {ForgottenWrite(node.id, node.name, true)}, now));
    forgotten_[node.id] = node.name;
    LogWarning("coordinator", "a node is forgotten name=", node.name, " job=", queued.job.id);
    SettleSessions();
    jobs_->EndIfItNeeds(node.id, absl::StrCat("node ", node.name, " is forgotten"), now);
    BeginQueuedJob(now);
    forgotten.job = *jobs_->Get(queued.job.id, now);
  } else {
    forgotten.job = *jobs_->Get(job->id, now);
  }
  return forgotten;
}

absl::Status Coordinator::CheckNotForgotten(const NodeRegistration& registration) const {
  if (const auto past = forgotten_.find(registration.past.node); past != forgotten_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this directory is of node ", past->second, " (id ", ToInt(past->first),
                     "), which was forgotten with its rows: start node ", registration.name,
                     " with an empty --data-dir; nothing of the old one is read"));
  }
  const NodeSpec* const known = plan_->FindNode(registration.name);
  if (known == nullptr || !forgotten_.contains(known->id)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", registration.name,
                   " is being forgotten: its name is free when `embla node ls` has it no more"));
}

void Coordinator::SettleForgotten() {
  for (const auto& [id, name] : forgotten_) {
    const bool is_kept = plan_->FindNode(id) == nullptr || jobs_->Forgetting(id) != nullptr ||
                         jobs_->HasForgottenSome(id);
    if (is_kept) continue;
    const StateWrite writes[] = {ForgottenWrite(id, name, false)};
    if (const absl::Status written = store_.Commit({}, writes).status(); !written.ok()) {
      LogWarning("coordinator", "cannot let a node come back: ", Message(written));
      return;
    }
    LogInfo("coordinator", "a node may come back: nothing of it was forgotten name=", name);
    forgotten_.erase(id);
    return;  // The others at the next tick.
  }
}

}  // namespace embla
