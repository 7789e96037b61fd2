// Jobs and units over AdminService, where the coordinator's thread does it all.
#include <string>

#include "core/base/status_macros.h"
#include "server/coordinator/unit_records.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/job_codec.h"
#include "server/rpc/post_unary.h"

namespace embla {
namespace {

absl::Status AnswerStartJob(Coordinator& coordinator, const v1::StartJobRequest& request,
                            v1::JobReply& reply, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const JobRequest job, FromMessage(request));
  EMBLA_ASSIGN_OR_RETURN(const JobView view, coordinator.StartJob(job, now));
  *reply.mutable_job() = ToMessage(view, *coordinator.GetPlan());
  return absl::OkStatus();
}

absl::Status AnswerListJobs(Coordinator& coordinator, const v1::ListJobsRequest&,
                            v1::ListJobsReply& reply, absl::Time now) {
  for (const JobView& view : coordinator.ListJobs(now)) *reply.add_jobs() = ToSummary(view);
  return absl::OkStatus();
}

absl::Status AnswerGetJob(Coordinator& coordinator, const v1::GetJobRequest& request,
                          v1::JobReply& reply, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const JobView view, coordinator.GetJob(request.id(), now));
  *reply.mutable_job() = ToMessage(view, *coordinator.GetPlan());
  return absl::OkStatus();
}

absl::Status AnswerControlJob(Coordinator& coordinator, const v1::ControlJobRequest& request,
                              v1::JobReply& reply, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const JobControl control, FromMessage(request.action()));
  EMBLA_ASSIGN_OR_RETURN(const JobView view, coordinator.ControlJob(request.id(), control, now));
  *reply.mutable_job() = ToMessage(view, *coordinator.GetPlan());
  return absl::OkStatus();
}

absl::Status AnswerForgetNode(Coordinator& coordinator, const v1::ForgetNodeRequest& request,
                              v1::ForgetNodeReply& reply, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(
      const ForgottenNode forgotten,
      coordinator.ForgetNode(
          {.node = request.node(), .lose_rows = request.lose_rows(), .dry_run = request.dry_run()},
          now));
  for (const LostRows& rows : forgotten.lost) {
    v1::LostRows& lost = *reply.add_lost();
    lost.set_table(rows.table);
    lost.set_units(rows.units);
    lost.set_rows(rows.rows);
    lost.set_bytes(rows.bytes);
  }
  if (forgotten.job) *reply.mutable_job() = ToMessage(*forgotten.job, *coordinator.GetPlan());
  return absl::OkStatus();
}

absl::Status AnswerListUnitOwners(Coordinator& coordinator,
                                  const v1::ListUnitOwnersRequest& request,
                                  v1::ListUnitOwnersReply& reply, absl::Time) {
  EMBLA_ASSIGN_OR_RETURN(const auto units, coordinator.ListUnits(request.table()));
  for (const auto& [unit, record] : units) {
    v1::UnitOwner& owner = *reply.add_units();
    owner.set_row_granule(unit.row_granule);
    owner.set_column_granule(unit.column_granule);
    owner.set_node(ToInt(record.owner));
    owner.set_epoch(ToInt(record.epoch));
    owner.set_phase(std::string(NameOf(record.phase)));
  }
  return absl::OkStatus();
}

}  // namespace

void AdminService::MarkJobMethods() {
  MarkMethodCallback(10, OnCoordinator(host_, AnswerStartJob));
  MarkMethodCallback(11, OnCoordinator(host_, AnswerListJobs));
  MarkMethodCallback(12, OnCoordinator(host_, AnswerGetJob));
  MarkMethodCallback(13, OnCoordinator(host_, AnswerControlJob));
  MarkMethodCallback(14, OnCoordinator(host_, AnswerListUnitOwners));
  MarkMethodCallback(19, OnCoordinator(host_, AnswerForgetNode));
}

}  // namespace embla
