#include "server/rpc/call_metrics.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/interceptor.h>

#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/metrics/instruments.h"

namespace embla {

class CallMetrics::Call final : public grpc::experimental::Interceptor {
 public:
  Call(Metrics& metrics, const Method& method)
      : metrics_(metrics), method_(method), began_(Clock::Real().Now()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      const auto code = static_cast<absl::StatusCode>(batch->GetSendStatus().error_code());
      metrics_.MakeCounter(MetricNamed("embla_requests_total"), {method_.name, CodeLabel(code)})
          .Add();
      method_.latency.Observe(Clock::Real().Now() - began_);
    }
    batch->Proceed();
  }

 private:
  Metrics& metrics_;      // Not owned; outlives this object.
  const Method& method_;  // Likewise.
  const absl::Time began_;
};

CallMetrics::CallMetrics(Metrics& metrics, std::span<const std::string> services)
    : metrics_(metrics) {
  for (const std::string& name : services) {
    const auto* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    EMBLA_CHECK(service != nullptr);
    for (int m = 0; m < service->method_count(); ++m) {
      const auto* const method = service->method(m);
      const bool is_stream = method->client_streaming() || method->server_streaming();
      methods_.emplace(
          "/" + name + "/" + method->name(),
          Method{method->name(),
                 is_stream ? Histogram()
                           : metrics.MakeHistogram(MetricNamed("embla_request_latency_seconds"),
                                                   {method->name()})});
    }
  }
}

grpc::experimental::Interceptor* CallMetrics::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  const auto found = methods_.find(info->method());
  return found == methods_.end() ? nullptr : new Call(metrics_, found->second);
}

}  // namespace embla
