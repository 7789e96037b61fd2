#include "tools/load/transport_ceilings.h"

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::load {
namespace {

// Bytes of a message beside ids, rows and gradients: versions, parts, sequence numbers.
constexpr std::size_t kRequestOverhead = 64;
constexpr std::size_t kReplyOverhead = 24;

}  // namespace

absl::StatusOr<std::unique_ptr<TransportCeilings>> TransportCeilings::Start(
    const std::string& peer_program) {
  std::unique_ptr<TransportCeilings> result(new TransportCeilings);
  EMBLA_ASSIGN_OR_RETURN(result->peer_, bench::CeilingPeer::Start(peer_program));
  for (const auto make :
       {bench::GrpcUnaryCeiling, bench::GrpcStreamCeiling, bench::SocketCeiling}) {
    EMBLA_ASSIGN_OR_RETURN(auto ceiling, make(*result->peer_));
    result->ceilings_.push_back(std::move(ceiling));
  }
  return result;
}

std::vector<std::string> TransportCeilings::names() const {
  return {"grpc_unary", "grpc_stream", "socket"};
}

absl::StatusOr<std::vector<double>> TransportCeilings::Measure(const Case& load) {
  EMBLA_CHECK(load.only_lookups() || load.only_updates());
  bench::Load exchange;
  exchange.request_bytes = kRequestOverhead + load.IdBytes();
  exchange.reply_bytes = kReplyOverhead;
  (load.only_updates() ? exchange.request_bytes : exchange.reply_bytes) += load.RowBytes();
  exchange.in_flight = load.in_flight;
  exchange.requests = load.requests;
  std::vector<double> rates;
  for (const auto& ceiling : ceilings_) {
    EMBLA_ASSIGN_OR_RETURN(const double seconds, ceiling->Run(exchange));
    rates.push_back(load.requests / seconds);
  }
  return rates;
}

}  // namespace embla::load
