#include "core/wire/redirect.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/wire/status_codec.h"
#include "embla/v1/redirect.pb.h"
#include "embla/v1/status.pb.h"

namespace embla::wire {
namespace {

constexpr std::chrono::milliseconds kClusterQuestion{500};

}  // namespace

grpc::Status RedirectStatus(const Redirect& redirect, const std::string& message) {
  v1::Redirect detail;
  detail.set_coordinator(redirect.coordinator);
  detail.set_admin(redirect.admin);
  detail.set_cluster_id(redirect.cluster_id);
  v1::StatusDetails details;
  details.set_code(grpc::StatusCode::UNAVAILABLE);
  details.set_message(StatusMessage(absl::UnavailableError(message)));
  details.add_details()->PackFrom(detail);
  return {grpc::StatusCode::UNAVAILABLE, details.message(), details.SerializeAsString()};
}

std::optional<Redirect> RedirectOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || status.error_details().empty()) {
    return std::nullopt;
  }
  v1::StatusDetails details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& each : details.details()) {
    v1::Redirect detail;
    if (!each.UnpackTo(&detail)) continue;
    return Redirect{detail.coordinator(), detail.admin(), detail.cluster_id()};
  }
  return std::nullopt;
}

std::vector<std::string> SplitAddresses(std::string_view list) {
  std::vector<std::string> addresses;
  while (true) {
    const std::size_t comma = list.find(',');
    addresses.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return addresses;
    list.remove_prefix(comma + 1);
  }
}

std::string CoordinatorChoice::current() const {
  const MutexLock lock(mu_);
  return current_;
}

void CoordinatorChoice::Leave(const std::string& address, const std::string& leader) {
  const MutexLock lock(mu_);
  if (address != current_) return;  // Another call has left it.
  if (!leader.empty() && leader != address) {
    current_ = leader;
    return;
  }
  if (addresses_[next_ % addresses_.size()] == address) ++next_;
  current_ = addresses_[next_++ % addresses_.size()];
}

std::string AskCluster(v1::CoordinatorService::Stub& stub) {
  v1::GetPlanRequest request;
  request.set_newer_than(UINT64_MAX);
  v1::PlanDelta reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kClusterQuestion);
  const std::optional<Redirect> redirect = RedirectOf(stub.GetPlan(&context, request, &reply));
  return redirect.has_value() ? redirect->cluster_id : reply.cluster_id();
}

absl::Status CheckOneCluster(const std::map<std::string, std::string>& cluster_of,
                             std::string_view flag) {
  const std::pair<const std::string, std::string>* first = nullptr;
  for (const auto& each : cluster_of) {
    if (each.second.empty()) continue;
    if (first == nullptr) first = &each;
    if (each.second == first->second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        ToAbsl(flag), " lists coordinators of two clusters: ", first->first, " is of cluster ",
        first->second, ", ", each.first, " of ", each.second, ": state those of one"));
  }
  return absl::OkStatus();
}

}  // namespace embla::wire
