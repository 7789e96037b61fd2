// Admin over AdminService.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/transport/address.h"
#include "client/transport/grpc_channel.h"
#include "client/transport/job_codec.h"
#include "core/base/text.h"
#include "core/wire/status_codec.h"
#include "embla/v1/admin.grpc.pb.h"

namespace embla::client {
namespace {

// Before the coordinator gives up waiting for nodes: it then says which one, and cleans up.
constexpr absl::Duration kReplyReserve = absl::Seconds(1);

v1::PlanInputs ToMessage(const PlanInputs& inputs) {
  v1::PlanInputs message;
  message.set_tables(inputs.tables);
  message.set_topology(inputs.topology);
  message.set_rules(inputs.rules);
  message.set_options(inputs.options);
  return message;
}

class GrpcAdmin final : public Admin {
 public:
  GrpcAdmin(const std::string& address, absl::Duration timeout)
      : address_(address),
        timeout_(timeout),
        channel_(MakeChannel(address)),
        stub_(v1::AdminService::NewStub(channel_)) {}

  // A call that does not wait for the channel fails with the reason why there is none.
  absl::Status Probe() {
    const absl::Status status = GetClusterStatus().status();
    return absl::IsUnavailable(status) || absl::IsUnimplemented(status) ? status : absl::OkStatus();
  }

  absl::Status WaitUntilConnected() const {
    if (channel_->WaitForConnected(DeadlineOf(absl::Now() + timeout_))) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("coordinator ", address_, " does not answer within ",
                                               absl::FormatDuration(timeout_)));
  }

  absl::StatusOr<ClusterStatus> GetClusterStatus() override {
    v1::ClusterStatus reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->GetClusterStatus(&context, v1::GetClusterStatusRequest(), &reply);
    });
    if (!status.ok()) return status;
    return ClusterStatus{.cluster_id = reply.cluster_id(),
                         .plan_version = reply.plan_version(),
                         .nodes_live = reply.nodes_live(),
                         .nodes_total = reply.nodes_total(),
                         .tables = reply.tables(),
                         .started = absl::FromUnixMillis(reply.started_unix_ms()),
                         .version = reply.version(),
                         .generation = reply.generation(),
                         .tables_aside = reply.tables_aside()};
  }

  absl::StatusOr<std::vector<NodeStatus>> ListNodes() override {
    v1::ListNodesReply reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->ListNodes(&context, v1::ListNodesRequest(), &reply);
    });
    if (!status.ok()) return status;
    std::vector<NodeStatus> nodes;
    for (const v1::NodeStatus& node : reply.nodes()) {
      nodes.push_back(
          {.node_json = node.node_json(),
           .live = node.live(),
           .plan_version = node.plan_version(),
           .last_heartbeat = absl::FromUnixMillis(node.last_heartbeat_unix_ms()),
           .device_used_bytes = {node.device_used_bytes().begin(), node.device_used_bytes().end()},
           .drained = node.drained(),
           .device_stopped = {node.device_stopped().begin(), node.device_stopped().end()},
           .failed_plan_version = node.failed_plan_version(),
           .failure = node.failure(),
           .failing_since = absl::FromUnixMillis(node.failing_since_unix_ms()),
           .version = node.version(),
           .protocol_version = node.protocol_version()});
    }
    return nodes;
  }

  absl::StatusOr<TableChange> CreateTable(const std::string& table_json,
                                          const std::string& placement_json) override {
    v1::CreateTableRequest request;
    request.set_table_json(table_json);
    request.set_placement_json(placement_json);
    const absl::Duration wait = std::max(timeout_ - kReplyReserve, timeout_ / 2);
    request.set_wait_ms(static_cast<std::uint32_t>(absl::ToInt64Milliseconds(wait)));
    return ChangeTable([&](grpc::ClientContext& context, v1::TableReply& reply) {
      return stub_->CreateTable(&context, request, &reply);
    });
  }

  absl::StatusOr<std::uint64_t> DropTable(const std::string& name) override {
    v1::DropTableRequest request;
    request.set_name(name);
    v1::DropTableReply reply;
    const absl::Status status = Call(
        [&](grpc::ClientContext& context) { return stub_->DropTable(&context, request, &reply); });
    if (!status.ok()) return status;
    return reply.plan_version();
  }

  absl::StatusOr<std::uint64_t> DropAsideTable(std::uint32_t id) override {
    v1::DropTableRequest request;
    request.set_aside_id(id);
    v1::DropTableReply reply;
    const absl::Status status = Call(
        [&](grpc::ClientContext& context) { return stub_->DropTable(&context, request, &reply); });
    if (!status.ok()) return status;
    return reply.plan_version();
  }

  absl::StatusOr<TableChange> AdoptTable(const std::string& name, std::uint32_t id) override {
    v1::AdoptTableRequest request;
    request.set_name(name);
    request.set_table_id(id);
    return ChangeTable([&](grpc::ClientContext& context, v1::TableReply& reply) {
      return stub_->AdoptTable(&context, request, &reply);
    });
  }

  absl::Status DropLeftovers(const std::string& table, const std::string& node) override {
    v1::DropLeftoversRequest request;
    request.set_table(table);
    request.set_node(node);
    v1::DropLeftoversReply reply;
    return Call([&](grpc::ClientContext& context) {
      return stub_->DropLeftovers(&context, request, &reply);
    });
  }

  absl::StatusOr<TableChange> SetTable(const std::string& name,
                                       const std::map<std::string, std::string>& values) override {
    v1::SetTableRequest request;
    request.set_name(name);
    for (const auto& [key, value] : values) (*request.mutable_values())[key] = value;
    return ChangeTable([&](grpc::ClientContext& context, v1::TableReply& reply) {
      return stub_->SetTable(&context, request, &reply);
    });
  }

  absl::StatusOr<TableChange> PlanTable(const std::string& table_json,
                                        const std::string& placement_json,
                                        const StatedTopology& topology) override {
    v1::PlanTableRequest request;
    request.set_table_json(table_json);
    request.set_placement_json(placement_json);
    request.set_nodes(topology.nodes);
    request.set_devices_per_node(topology.devices_per_node);
    request.set_device_memory_bytes(topology.device_memory_bytes);
    return ChangeTable([&](grpc::ClientContext& context, v1::TableReply& reply) {
      return stub_->PlanTable(&context, request, &reply);
    });
  }

  absl::StatusOr<std::string> GetPlanJson() override {
    v1::Plan reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->GetPlan(&context, v1::GetClusterPlanRequest(), &reply);
    });
    if (!status.ok()) return status;
    return reply.json();
  }

  absl::StatusOr<std::vector<PlanChange>> GetPlanHistory(std::uint32_t limit) override {
    v1::GetPlanHistoryRequest request;
    request.set_limit(limit);
    v1::PlanHistory reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->GetPlanHistory(&context, request, &reply);
    });
    if (!status.ok()) return status;
    std::vector<PlanChange> changes;
    for (const v1::PlanChange& change : reply.changes()) {
      changes.push_back({change.version(), absl::FromUnixMillis(change.unix_ms()), change.cause()});
    }
    return changes;
  }

  absl::StatusOr<std::string> GetPlanJsonAt(std::uint64_t version) override {
    v1::GetPlanAtRequest request;
    request.set_version(version);
    v1::Plan reply;
    const absl::Status status = Call(
        [&](grpc::ClientContext& context) { return stub_->GetPlanAt(&context, request, &reply); });
    if (!status.ok()) return status;
    return reply.json();
  }

  absl::StatusOr<Job> StartJob(const JobRequest& request) override {
    return JobCall([&](grpc::ClientContext& context, v1::JobReply& reply) {
      return stub_->StartJob(&context, ToMessage(request), &reply);
    });
  }

  absl::StatusOr<std::vector<Job>> ListJobs() override {
    v1::ListJobsReply reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->ListJobs(&context, v1::ListJobsRequest(), &reply);
    });
    if (!status.ok()) return status;
    std::vector<Job> jobs;
    for (const v1::Job& job : reply.jobs()) jobs.push_back(FromMessage(job));
    return jobs;
  }

  absl::StatusOr<Job> GetJob(std::uint64_t id) override {
    v1::GetJobRequest request;
    request.set_id(id);
    return JobCall([&](grpc::ClientContext& context, v1::JobReply& reply) {
      return stub_->GetJob(&context, request, &reply);
    });
  }

  absl::StatusOr<Job> ControlJob(std::uint64_t id, JobControl control) override {
    v1::ControlJobRequest request;
    request.set_id(id);
    request.set_action(static_cast<v1::ControlJobRequest::Action>(control));
    return JobCall([&](grpc::ClientContext& context, v1::JobReply& reply) {
      return stub_->ControlJob(&context, request, &reply);
    });
  }

  absl::StatusOr<ForgottenNode> ForgetNode(const std::string& node, bool lose_rows,
                                           bool dry_run) override {
    v1::ForgetNodeRequest request;
    request.set_node(node);
    request.set_lose_rows(lose_rows);
    request.set_dry_run(dry_run);
    v1::ForgetNodeReply reply;
    const absl::Status status = Call(
        [&](grpc::ClientContext& context) { return stub_->ForgetNode(&context, request, &reply); });
    if (!status.ok()) return status;
    ForgottenNode forgotten;
    for (const v1::LostRows& lost : reply.lost()) {
      forgotten.lost.push_back({lost.table(), lost.units(), lost.rows(), lost.bytes()});
    }
    forgotten.job = FromMessage(reply.job());
    return forgotten;
  }

  absl::Status PutSolvedPlan(const PlanInputs& inputs, const std::string& plan_json) override {
    v1::SolvedPlan request;
    *request.mutable_inputs() = ToMessage(inputs);
    request.set_plan_json(plan_json);
    v1::PutSolvedPlanReply reply;
    return Call([&](grpc::ClientContext& context) {
      return stub_->PutSolvedPlan(&context, request, &reply);
    });
  }

  absl::StatusOr<std::string> FindSolvedPlan(const PlanInputs& inputs) override {
    v1::SolvedPlan reply;
    const absl::Status status = Call([&](grpc::ClientContext& context) {
      return stub_->FindSolvedPlan(&context, ToMessage(inputs), &reply);
    });
    if (!status.ok()) return status;
    return reply.plan_json();
  }

 private:
  template <typename Rpc>
  absl::Status Call(const Rpc& rpc) const {
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(absl::Now() + timeout_));
    const absl::Status status = wire::FromGrpc(rpc(context));
    // The server's own words need no address in front of them.
    const bool unreachable = status.code() == absl::StatusCode::kUnavailable ||
                             status.code() == absl::StatusCode::kDeadlineExceeded;
    return unreachable ? Annotate(status, absl::StrCat("coordinator ", address_)) : status;
  }

  template <typename Rpc>
  absl::StatusOr<Job> JobCall(const Rpc& rpc) const {
    v1::JobReply reply;
    const absl::Status status =
        Call([&](grpc::ClientContext& context) { return rpc(context, reply); });
    if (!status.ok()) return status;
    return FromMessage(reply.job());
  }

  template <typename Rpc>
  absl::StatusOr<TableChange> ChangeTable(const Rpc& rpc) const {
    v1::TableReply reply;
    const absl::Status status =
        Call([&](grpc::ClientContext& context) { return rpc(context, reply); });
    if (!status.ok()) return status;
    return TableChange{.table_plan_json = reply.table_plan_json(),
                       .plan_version = reply.plan_version(),
                       .left_out = {reply.left_out().begin(), reply.left_out().end()}};
  }

  const std::string address_;
  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AdminService::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Admin>> Admin::Connect(const std::string& admin_address,
                                                      absl::Duration timeout, IfAbsent if_absent) {
  if (const absl::Status valid = CheckAddress(admin_address); !valid.ok()) return valid;
  if (timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout ", absl::FormatDuration(timeout), " must be positive"));
  }
  auto admin = std::make_unique<GrpcAdmin>(admin_address, timeout);
  const absl::Status status =
      if_absent == IfAbsent::kFail ? admin->Probe() : admin->WaitUntilConnected();
  if (!status.ok()) return status;
  return admin;
}

}  // namespace embla::client
