// Inspector over AdminService and the nodes' InspectService.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/inspector.h"
#include "client/transport/grpc_channel.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/status_codec.h"
#include "embla/v1/admin.grpc.pb.h"
#include "embla/v1/inspect.grpc.pb.h"

namespace embla::client {
namespace {

UnitOnNode FromMessage(const v1::InspectedUnit& message) {
  return {.row_granule = message.row_granule(),
          .column_begin = message.column_begin(),
          .column_end = message.column_end(),
          .replica_group = message.replica_group(),
          .device = message.device(),
          .state = static_cast<UnitOnNode::State>(message.state()),
          .rows = message.rows(),
          .crc32c = message.crc32c()};
}

class GrpcInspector final : public Inspector {
 public:
  GrpcInspector(std::unique_ptr<Admin> admin, absl::Duration timeout, TlsPtr tls)
      : timeout_(timeout), tls_(std::move(tls)), admin_(std::move(admin)) {}

  absl::StatusOr<std::vector<UnitOwner>> Owners(const std::string& table) override {
    v1::ListUnitOwnersRequest request;
    request.set_table(table);
    v1::ListUnitOwnersReply reply;
    const absl::Status status = admin_->Call(request, reply);
    if (!status.ok()) return Annotate(status, "coordinator");
    std::vector<UnitOwner> owners;
    for (const v1::UnitOwner& owner : reply.units()) {
      owners.push_back({.row_granule = owner.row_granule(),
                        .column_granule = owner.column_granule(),
                        .node = owner.node(),
                        .epoch = owner.epoch(),
                        .phase = owner.phase()});
    }
    return owners;
  }

  absl::StatusOr<std::vector<UnitOnNode>> UnitsOn(const std::string& node_address,
                                                  std::uint32_t table_id) override {
    const auto stub =
        v1::InspectService::NewStub(MakeChannel(node_address, tls_, {.role = Role::kNode}));
    v1::InspectTableRequest request;
    request.set_table_id(table_id);
    v1::InspectTableReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(Clock::Real().Now() + timeout_));
    const absl::Status status = wire::FromGrpc(stub->InspectTable(&context, request, &reply));
    std::vector<UnitOnNode> units;
    if (absl::IsNotFound(status)) return units;
    if (!status.ok()) return Annotate(status, absl::StrCat("node at ", node_address));
    for (const v1::InspectedUnit& unit : reply.units()) units.push_back(FromMessage(unit));
    return units;
  }

 private:
  const absl::Duration timeout_;
  const TlsPtr tls_;
  const std::unique_ptr<Admin> admin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Inspector>> Inspector::Connect(const std::string& admin_address,
                                                              absl::Duration timeout,
                                                              const TlsOptions& tls) {
  EMBLA_ASSIGN_OR_RETURN(TlsPtr loaded, LoadTls(tls));
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<Admin> admin,
                         Admin::Connect(admin_address, timeout, Admin::IfAbsent::kFail, tls));
  return std::make_unique<GrpcInspector>(std::move(admin), timeout, std::move(loaded));
}

}  // namespace embla::client
