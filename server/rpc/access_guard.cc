#include "server/rpc/access_guard.h"

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"

namespace embla {

grpc::Status AccessGuard::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                  OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string method =
      path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
  const std::optional<Identity> caller = CallerOf(*context);
  if (!caller.has_value()) {
    return {grpc::StatusCode::UNAUTHENTICATED, "the connection has no caller's certificate"};
  }
  const absl::Status access = CheckAccess(method, *caller);
  if (access.ok()) return grpc::Status::OK;
  metrics_.Denied(NameOf(caller->role));
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
