// Holds every call that comes over TLS against the rules (server/rpc/access_rules.h), before its
// message is read and before any handler hears of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include <grpcpp/security/auth_metadata_processor.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/instruments.h"
#include "core/tls/certificate.h"
#include "core/tls/tls.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class AccessGuard final : public grpc::AuthMetadataProcessor {
 public:
  // `tls` is the server's; null: the guard is not asked. `metrics` may be null; otherwise it is
  // not owned and outlives the guard.
  AccessGuard(TlsPtr tls, Metrics* metrics) : tls_(std::move(tls)), metrics_(metrics) {}

  // On gRPC's threads, once per call.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // A caller was refused in the handshake.
  void OnHandshakeRefused(TlsRefusal refusal, const absl::Status& why);

 private:
  // Refusals come in floods: one line of log a second.
  bool IsTimeToTell();

  // By certificate, else by token.
  absl::StatusOr<Identity> CallerOf(const InputMetadata& metadata,
                                    const grpc::AuthContext& context) const;

  const TlsPtr tls_;
  const AccessMetrics metrics_;
  std::atomic<std::int64_t> told_at_ = 0;  // In seconds.
};

}  // namespace embla
