// Holds every call that comes over TLS against the rules (server/rpc/access_rules.h), before its
// message is read and before any handler hears of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <grpcpp/security/auth_metadata_processor.h>

#include "absl/status/status.h"
#include "core/metrics/instruments.h"
#include "core/tls/certificate.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class AccessGuard final : public grpc::AuthMetadataProcessor {
 public:
  // `metrics` may be null; otherwise it is not owned and outlives the guard.
  explicit AccessGuard(Metrics* metrics) : metrics_(metrics) {}

  // On gRPC's threads, once per call.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // A caller was refused in the handshake.
  void OnHandshakeRefused(TlsRefusal refusal, const absl::Status& why);

 private:
  // Refusals come in floods: one line of log a second.
  bool IsTimeToTell();

  const AccessMetrics metrics_;
  std::atomic<std::int64_t> told_at_ = 0;  // In seconds.
};

}  // namespace embla
