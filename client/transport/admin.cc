// Admin over AdminService.
#include "client/include/embla/admin.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
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
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/redirect.h"
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

// One of several coordinators that does not answer holds a call up for so long.
constexpr absl::Duration kLeaderQuestion = absl::Seconds(1);
constexpr absl::Duration kLeaderPause = absl::Milliseconds(100);  // While none leads.

class GrpcAdmin final : public Admin {
 public:
  GrpcAdmin(const std::string& addresses, absl::Duration timeout, TlsPtr tls)
      : timeout_(timeout), tls_(std::move(tls)), choice_(wire::SplitAddresses(addresses)) {}

  // A call that does not wait for the channel fails with the reason why there is none.
  absl::Status Probe() {
    if (choice_.has_several()) return CheckClusters();
    v1::ClusterStatus reply;
    const absl::Status status = Call(v1::GetClusterStatusRequest(), reply);
    return absl::IsUnavailable(status) || absl::IsUnimplemented(status) ? status : absl::OkStatus();
  }

  absl::Status WaitUntilConnected() {
    if (choice_.has_several()) return CheckClusters();
    const std::string address = choice_.current();
    if (LinkTo(address).channel->WaitForConnected(DeadlineOf(Clock::Real().Now() + timeout_))) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat(Describe(address), " does not answer within ",
                                               absl::FormatDuration(timeout_)));
  }

  using Admin::Call;
  absl::Status Call(const ProtoMessage& request, ProtoMessage& reply) override {
    EMBLA_ASSIGN_OR_RETURN(const std::string path, PathOf(request, reply));
    // A call whose answer is lost may have been carried out, so it is not sent to another
    // coordinator: the one that leads is found first.
    if (choice_.has_several()) EMBLA_RETURN_IF_ERROR(FindLeader());
    const std::string address = choice_.current();
    grpc::Status answer = CallUnary(address, path, request, timeout_, reply);
    const std::optional<wire::Redirect> redirect = wire::RedirectOf(answer);
    if (redirect.has_value() && !redirect->admin.empty()) {
      answer = CallUnary(redirect->admin, path, request, timeout_, reply);
    }
    const absl::Status status = wire::FromGrpc(answer);
    // The server's own words need no address in front of them.
    const bool unreachable = status.code() == absl::StatusCode::kUnavailable ||
                             status.code() == absl::StatusCode::kDeadlineExceeded;
    return unreachable ? Annotate(status, Describe(address)) : status;
  }

 private:
  struct Link {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<grpc::GenericStub> stub;
  };

  std::string Describe(const std::string& address) const {
    return DescribeServer("coordinator", address, tls_);
  }

  // Made once for each coordinator.
  Link& LinkTo(const std::string& address) {
    const MutexLock lock(mu_);
    Link& link = links_[address];
    if (link.channel == nullptr) {
      const ExpectedPeer peer{.role = Role::kCoordinator};
      link.channel = choice_.has_several() ? MakeMemberChannel(address, tls_, peer)
                                           : MakeChannel(address, tls_, peer);
      link.stub = std::make_unique<grpc::GenericStub>(link.channel);
    }
    return link;
  }

  grpc::Status AskStatus(const std::string& address, v1::ClusterStatus& reply) {
    return CallUnary(address, "/embla.v1.AdminService/GetClusterStatus",
                     v1::GetClusterStatusRequest(), std::min(timeout_, kLeaderQuestion), reply);
  }

  // Until one leads, for timeout_ at most: another one is about to when the leader is gone.
  absl::Status FindLeader() {
    const absl::Time until = Clock::Real().Now() + timeout_;
    for (std::size_t tries = 1;; ++tries) {
      const std::string address = choice_.current();
      v1::ClusterStatus reply;
      const grpc::Status answer = AskStatus(address, reply);
      const bool is_away = answer.error_code() == grpc::StatusCode::UNAVAILABLE ||
                           answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      const absl::Status status = Annotate(wire::FromGrpc(answer), Describe(address));
      if (!is_away || Clock::Real().Now() >= until) return status;
      const std::optional<wire::Redirect> redirect = wire::RedirectOf(answer);
      choice_.Leave(address, redirect.has_value() ? redirect->admin : "");
      if (tries % (choice_.addresses().size() + 1) == 0) absl::SleepFor(kLeaderPause);
    }
  }

  // InvalidArgument: the list has coordinators of two clusters.
  absl::Status CheckClusters() {
    std::map<std::string, std::string> clusters;
    for (const std::string& address : choice_.addresses()) {
      v1::ClusterStatus reply;
      const std::optional<wire::Redirect> redirect = wire::RedirectOf(AskStatus(address, reply));
      clusters[address] = redirect.has_value() ? redirect->cluster_id : reply.cluster_id();
    }
    EMBLA_RETURN_IF_ERROR(wire::CheckOneCluster(clusters, "the list of coordinators"));
    return FindLeader();
  }

  grpc::Status CallUnary(const std::string& address, const std::string& path,
                         const ProtoMessage& request, absl::Duration timeout, ProtoMessage& reply) {
    grpc::Slice slice(request.SerializeAsString());
    const grpc::ByteBuffer sent(&slice, 1);
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(Clock::Real().Now() + timeout));
    grpc::CompletionQueue queue;
    const auto call = LinkTo(address).stub->PrepareUnaryCall(&context, path, sent, &queue);
    call->StartCall();
    grpc::ByteBuffer received;
    grpc::Status status;
    call->Finish(&received, &status, nullptr);
    void* tag = nullptr;
    bool is_ok = false;
    queue.Next(&tag, &is_ok);
    if (!status.ok()) return AnswerOf(status);
    grpc::Slice whole;
    if (received.DumpToSingleSlice(&whole).ok() &&
        reply.ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::INTERNAL,
            absl::StrCat(path, ": the reply is no ", reply.GetDescriptor()->full_name())};
  }

  const absl::Duration timeout_;
  const TlsPtr tls_;
  wire::CoordinatorChoice choice_;
  Mutex mu_;
  std::map<std::string, Link> links_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Admin>> Admin::Connect(const std::string& admin_address,
                                                      absl::Duration timeout, IfAbsent if_absent,
                                                      const TlsOptions& tls) {
  if (const absl::Status valid = CheckAddresses(admin_address); !valid.ok()) return valid;
  if (timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout ", absl::FormatDuration(timeout), " must be positive"));
  }
  EMBLA_ASSIGN_OR_RETURN(const TlsPtr loaded, LoadTls(tls));
  auto admin = std::make_unique<GrpcAdmin>(admin_address, timeout, loaded);
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
