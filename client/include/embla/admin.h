// Administration: tables, plans, nodes and jobs, as the CLI `embla` does it. Requests and replies
// are the messages of proto/embla/v1/admin.proto, which says what they mean and which errors there
// are.
//
//   auto admin = Admin::Connect("host:7071", absl::Seconds(10));
//   auto nodes = (*admin)->Call<v1::ListNodesReply>(v1::ListNodesRequest());
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "embla/tls.h"
#include "embla/v1/admin.pb.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class Admin {
 public:
  // Waits for a coordinator that does not answer, for `timeout`, which is also that of each call,
  // or fails at once if nobody listens there or the name has no address. `admin_address`: of
  // several coordinators all, with commas in between; then every call goes to the one that leads,
  // and waits while none does. Errors: InvalidArgument (not host:port, or two clusters),
  // Unavailable, Unimplemented (no coordinator's admin port), and those of certificates
  // (Client::Connect).
  enum class IfAbsent : std::uint8_t { kWait, kFail };
  static absl::StatusOr<std::unique_ptr<Admin>> Connect(const std::string& admin_address,
                                                        absl::Duration timeout,
                                                        IfAbsent if_absent = IfAbsent::kWait,
                                                        const TlsOptions& tls = {});
  virtual ~Admin() = default;

  // Calls the method of AdminService that takes a message of `request`'s type; no two take the
  // same. Errors are those of admin.proto, plus Unavailable when the coordinator does not answer,
  // and InvalidArgument when no method takes such a request or it answers with another message.
  virtual absl::Status Call(const google::protobuf::Message& request,
                            google::protobuf::Message& reply) = 0;

  template <typename Reply>
  absl::StatusOr<Reply> Call(const google::protobuf::Message& request) {
    Reply reply;
    if (absl::Status status = Call(request, reply); !status.ok()) return status;
    return reply;
  }
};

// Requests that take more than a line to fill. Documents are JSON as in docs/plan_format.md.
v1::CreateTableRequest CreateTableRequest(const std::string& table_json,
                                          const std::string& placement_json);
v1::DropTableRequest DropTableRequest(const std::string& name);
v1::StartJobRequest ReshardRequest(const std::string& table, std::uint32_t shards);
// Row granules [granule_begin, granule_end).
v1::StartJobRequest MoveRequest(const std::string& table, std::uint32_t granule_begin,
                                std::uint32_t granule_end, const std::string& node,
                                std::uint32_t device);
v1::StartJobRequest RebalanceRequest();
v1::StartJobRequest DrainRequest(const std::string& node);
v1::StartJobRequest UndrainRequest(const std::string& node);
v1::GetJobRequest GetJobRequest(std::uint64_t id);
v1::ControlJobRequest ControlJobRequest(std::uint64_t id, v1::ControlJobRequest::Action action);

// The job of a call that answers with one: StartJob, GetJob, ControlJob.
absl::StatusOr<v1::Job> CallForJob(Admin& admin, const google::protobuf::Message& request);

// Whether a job in this state does nothing any more.
bool IsOver(v1::JobState state);

}  // namespace embla::client
