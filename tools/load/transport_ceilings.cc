#include "tools/load/transport_ceilings.h"

#include <utility>

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
  EMBLA_ASSIGN_OR_RETURN(result->unary_, bench::GrpcUnaryCeiling(*result->peer_));
  EMBLA_ASSIGN_OR_RETURN(result->stream_, bench::GrpcStreamCeiling(*result->peer_));
  EMBLA_ASSIGN_OR_RETURN(result->socket_, bench::SocketCeiling(*result->peer_));
  return result;
}

absl::StatusOr<std::vector<TransportCeilings::Rate>> TransportCeilings::Measure(const Case& load) {
  EMBLA_CHECK(load.only_lookups() || load.only_updates());
  bench::Load exchange;
  exchange.request_bytes = kRequestOverhead + load.IdBytes();
  exchange.reply_bytes = kReplyOverhead;
  (load.only_updates() ? exchange.request_bytes : exchange.reply_bytes) += load.RowBytes();
  exchange.in_flight = load.in_flight;
  exchange.requests = load.requests;
  std::vector<Rate> rates;
  const auto measure = [&](std::string name, bench::Ceiling& ceiling) {
    const absl::StatusOr<double> seconds = ceiling.Run(exchange);
    if (seconds.ok()) rates.push_back({std::move(name), load.requests / *seconds});
    return seconds.status();
  };
  EMBLA_RETURN_IF_ERROR(measure("grpc_unary", *unary_));
  EMBLA_RETURN_IF_ERROR(measure("grpc_stream", *stream_));
  EMBLA_RETURN_IF_ERROR(measure("socket", *socket_));
  if (load.tables > 1 || load.has_bags() || load.wire != client::WireFormat::kFp32 ||
      load.ids > static_cast<int>(bench::kWorkRows)) {
    return rates;
  }
  exchange.work = load.only_updates() ? bench::Work::kStep : bench::Work::kGather;
  exchange.ids = static_cast<std::uint32_t>(load.ids);
  exchange.dim = static_cast<std::uint32_t>(load.dim);
  bench::Load first = exchange;  // The peer makes its table.
  first.requests = first.in_flight;
  EMBLA_RETURN_IF_ERROR(socket_->Run(first).status());
  EMBLA_RETURN_IF_ERROR(measure("grpc_stream_work", *stream_));
  EMBLA_RETURN_IF_ERROR(measure("socket_work", *socket_));
  return rates;
}

}  // namespace embla::load
