#include "server/rpc/access_guard.h"

#include <iterator>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"

namespace embla {

absl::StatusOr<Identity> AccessGuard::CallerOf(const InputMetadata& metadata,
                                               const grpc::AuthContext& context) const {
  if (const auto shown = embla::CallerOf(context); shown.has_value()) return *shown;
  // With two of them, handlers might believe the other one.
  const auto [first, last] = metadata.equal_range("authorization");
  if (first == last) return tls_->JudgeToken("");
  if (std::next(first) != last) return absl::UnauthenticatedError("the call has several tokens");
  return tls_->JudgeToken({first->second.data(), first->second.size()});
}

grpc::Status AccessGuard::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                  OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string method =
      path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
  const absl::StatusOr<Identity> caller = CallerOf(metadata, *context);
  const absl::Status access = caller.ok() ? CheckAccess(method, *caller) : caller.status();
  if (access.ok()) return grpc::Status::OK;
  metrics_.Denied(caller.ok() ? NameOf(caller->role) : "none");
  if (IsTimeToTell()) LogWarning("rpc", "call denied reason=", Message(access));
  return wire::ToGrpc(access);
}

void AccessGuard::OnHandshakeRefused(TlsRefusal refusal, const absl::Status& why) {
  metrics_.HandshakeRefused(NameOf(refusal));
  if (IsTimeToTell()) {
    LogWarning("rpc", "connection refused over TLS refusal=", ToAbsl(NameOf(refusal)),
               " reason=", Message(why));
  }
}

bool AccessGuard::IsTimeToTell() {
  const std::int64_t now = absl::ToUnixSeconds(absl::Now());
  return told_at_.exchange(now, std::memory_order_relaxed) != now;
}

}  // namespace embla
