// The audit log: a line of JSON for every call that changed the cluster or tried to, in a file that
// is only appended to.
//
//   {"time": "2026-01-31T10:00:00.123456Z", "who": "spiffe://prod/operator/ann",
//    "peer": "ipv4:10.0.0.7:41234", "method": "embla.v1.AdminService/StartJob",
//    "what": {...the request...}, "result": "OK", "message": "", "job": 7}
//
// Lines are written before the call is answered; what the disk has of them after a loss of power
// is up to the system. Bytes of a request (proofs, nonces) are left out, and requests of more than
// 64 KiB are told by their size. "who" is empty over plaintext, where nobody is known.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/support/server_interceptor.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class AuditLog {
 public:
  // Appends to the file at `path`, which is made where it is missing. `metrics` may be null;
  // otherwise it is not owned and outlives the log. Errors: those of AppendFile.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, Metrics* metrics);

  // An error is logged and counted: a full disk does not stop the cluster.
  void Append(const std::string& line);

 private:
  AuditLog(AppendFile file, Metrics* metrics);

  const Counter failures_;
  Mutex mu_;
  AppendFile file_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;  // The line before was not written.
};

// Watches the calls of the coordinator's unary methods, where their rule says that they change
// something.
class AuditCalls final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // `log` is not owned and outlives the server.
  explicit AuditCalls(AuditLog& log) : log_(log) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  class Call;

  AuditLog& log_;  // Not owned; outlives this object.
};

}  // namespace embla
