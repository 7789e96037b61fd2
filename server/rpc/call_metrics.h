// Counts the calls of a listener's generated services, whatever their handlers do. So the
// coordinator, whose methods are many and small, has embla_requests_total and
// embla_request_latency_seconds.
#pragma once

#include <map>
#include <span>
#include <string>

#include <grpcpp/support/server_interceptor.h>

#include "core/metrics/metrics.h"

namespace embla {

// Thread safety: gRPC asks it once per call, on any thread.
class CallMetrics final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // Calls of methods that `services`, such as "embla.v1.AdminService", do not have are not counted:
  // their names come from strangers. Streams are counted at their end, without a latency.
  // `metrics` is not owned and outlives the server.
  CallMetrics(Metrics& metrics, std::span<const std::string> services);

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  struct Method {
    std::string name;
    Histogram latency;  // Counts nothing for streams.
  };
  class Call;

  Metrics& metrics_;                             // Not owned; outlives this object.
  std::map<std::string, const Method> methods_;  // By "/service/method".
};

}  // namespace embla
