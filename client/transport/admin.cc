// Admin over AdminService.
#include "client/include/embla/admin.h"

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/transport/address.h"
#include "client/transport/grpc_channel.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/status_codec.h"

namespace embla::client {
namespace {

using ProtoMessage = google::protobuf::Message;

// The method whose request has the type of `request`.
absl::StatusOr<std::string> PathOf(const ProtoMessage& request, const ProtoMessage& reply) {
  const auto& service = *v1::Job::descriptor()->file()->FindServiceByName("AdminService");
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& method = *service.method(i);
    if (method.input_type() != request.GetDescriptor()) continue;
    if (method.output_type() == reply.GetDescriptor()) {
      return absl::StrCat("/", service.full_name(), "/", method.name());
    }
    return absl::InvalidArgumentError(absl::StrCat(method.full_name(), " answers with ",
                                                   method.output_type()->full_name(), ", not with ",
                                                   reply.GetDescriptor()->full_name()));
  }
  return absl::InvalidArgumentError(absl::StrCat("no method of ", service.full_name(), " takes a ",
                                                 request.GetDescriptor()->full_name()));
}

class GrpcAdmin final : public Admin {
 public:
  GrpcAdmin(const std::string& address, absl::Duration timeout)
      : address_(address), timeout_(timeout), channel_(MakeChannel(address)), stub_(channel_) {}

  // A call that does not wait for the channel fails with the reason why there is none.
  absl::Status Probe() {
    v1::ClusterStatus reply;
    const absl::Status status = Call(v1::GetClusterStatusRequest(), reply);
    return absl::IsUnavailable(status) || absl::IsUnimplemented(status) ? status : absl::OkStatus();
  }

  absl::Status WaitUntilConnected() const {
    if (channel_->WaitForConnected(DeadlineOf(absl::Now() + timeout_))) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("coordinator ", address_, " does not answer within ",
                                               absl::FormatDuration(timeout_)));
  }

  using Admin::Call;
  absl::Status Call(const ProtoMessage& request, ProtoMessage& reply) override {
    EMBLA_ASSIGN_OR_RETURN(const std::string path, PathOf(request, reply));
    const absl::Status status = CallUnary(path, request, reply);
    // The server's own words need no address in front of them.
    const bool unreachable = status.code() == absl::StatusCode::kUnavailable ||
                             status.code() == absl::StatusCode::kDeadlineExceeded;
    return unreachable ? Annotate(status, absl::StrCat("coordinator ", address_)) : status;
  }

 private:
  absl::Status CallUnary(const std::string& path, const ProtoMessage& request,
                         ProtoMessage& reply) {
    grpc::Slice slice(request.SerializeAsString());
    const grpc::ByteBuffer sent(&slice, 1);
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(absl::Now() + timeout_));
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareUnaryCall(&context, path, sent, &queue);
    call->StartCall();
    grpc::ByteBuffer received;
    grpc::Status status;
    call->Finish(&received, &status, nullptr);
    void* tag = nullptr;
    bool is_ok = false;
    queue.Next(&tag, &is_ok);
    if (!status.ok()) return wire::FromGrpc(status);
    grpc::Slice whole;
    if (received.DumpToSingleSlice(&whole).ok() &&
        reply.ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
      return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat(path, ": the reply is no ", reply.GetDescriptor()->full_name()));
  }

  const std::string address_;
  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
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

v1::CreateTableRequest CreateTableRequest(const std::string& table_json,
                                          const std::string& placement_json) {
  v1::CreateTableRequest request;
  request.set_table_json(table_json);
  request.set_placement_json(placement_json);
  return request;
}

v1::DropTableRequest DropTableRequest(const std::string& name) {
  v1::DropTableRequest request;
  request.set_name(name);
  return request;
}

v1::StartJobRequest ReshardRequest(const std::string& table, std::uint32_t shards) {
  v1::StartJobRequest request;
  request.mutable_reshard()->set_table(table);
  request.mutable_reshard()->set_shards(shards);
  return request;
}

v1::StartJobRequest MoveRequest(const std::string& table, std::uint32_t granule_begin,
                                std::uint32_t granule_end, const std::string& node,
                                std::uint32_t device) {
  v1::StartJobRequest request;
  v1::MoveUnits& move = *request.mutable_move();
  move.set_table(table);
  move.set_granule_begin(granule_begin);
  move.set_granule_end(granule_end);
  move.set_node(node);
  move.set_device(device);
  return request;
}

v1::StartJobRequest RebalanceRequest() {
  v1::StartJobRequest request;
  request.mutable_rebalance();
  return request;
}

v1::StartJobRequest DrainRequest(const std::string& node) {
  v1::StartJobRequest request;
  request.mutable_drain()->set_node(node);
  return request;
}

v1::StartJobRequest UndrainRequest(const std::string& node) {
  v1::StartJobRequest request;
  request.set_undrain_node(node);
  return request;
}

v1::GetJobRequest GetJobRequest(std::uint64_t id) {
  v1::GetJobRequest request;
  request.set_id(id);
  return request;
}

v1::ControlJobRequest ControlJobRequest(std::uint64_t id, v1::ControlJobRequest::Action action) {
  v1::ControlJobRequest request;
  request.set_id(id);
  request.set_action(action);
  return request;
}

absl::StatusOr<v1::Job> CallForJob(Admin& admin, const google::protobuf::Message& request) {
  EMBLA_ASSIGN_OR_RETURN(v1::JobReply reply, admin.Call<v1::JobReply>(request));
  return std::move(*reply.mutable_job());
}

bool IsOver(v1::JobState state) {
  return state == v1::JOB_STATE_DONE || state == v1::JOB_STATE_CANCELLED ||
         state == v1::JOB_STATE_FAILED;
}

}  // namespace embla::client
