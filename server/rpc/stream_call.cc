#include "server/rpc/stream_call.h"

#include <utility>

#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/arriving_gradients.h"

namespace embla {
namespace {

StreamCaller CallerOfStream(const grpc::CallbackServerContext& call) {
  StreamCaller caller{
      .connection = ConnectionOf(call), .identity = CallerOf(call), .may_update = {}};
  caller.may_update = CheckAccess("/embla.v1.DataService/Update", caller.identity);
  return caller;
}

}  // namespace

StreamCall::StreamCall(DataContext& context, OpenStreams& open, DataSockets* sockets,
                       const grpc::CallbackServerContext& call)
    : RequestStream(context, open, CallerOfStream(call), context.shard.streams), sockets_(sockets) {
  Open();
}

void StreamCall::OnReadDone(bool ok) {
  if (!ok) {
    Withdraw(false);
    EndReads();
    return;
  }
  if (!TakeRequest()) return;
  const std::size_t bytes = received_.Length();
  ArrivingGradients gradients;
  absl::StatusOr<wire::StreamRequest> request = wire::DecodeStreamRequest(
      received_, context_.pool, context_.options.limits, gradients.filled());
  received_.Clear();
  const absl::Status decoded = request.status();
  if (decoded.ok()) {
    if (request->call.ok() && request->is_update) {
      gradients.NoteIn(std::get<UpdateBatch>(*request->call));
    }
    Arrival arrival = Begin(*request, bytes);
    Execute(std::move(arrival), *std::move(request));
  }
  FinishTaking(decoded);
}

void StreamCall::StartWrite(wire::SplitMessage message) {
  sent_ = wire::Join(message);
  Reactor::StartWrite(&sent_);
}

void StreamCall::Finish(const absl::Status& why) { Reactor::Finish(wire::ToGrpc(why)); }

std::optional<wire::DataSocketOffer> StreamCall::OfferDataSocket() {
  if (sockets_ == nullptr) return std::nullopt;
  MutexLock lock(offer_mu_);
  wire::DataSocketOffer offer = sockets_->Offer(*this, ticket_);
  ticket_ = offer.ticket;
  return offer;
}

void StreamCall::Withdraw(bool at_once) {
  std::string ticket;
  {
    MutexLock lock(offer_mu_);
    ticket = ticket_;
  }
  if (!ticket.empty()) sockets_->Withdraw(ticket, at_once);
}

void StreamCall::OnCancel() {
  Withdraw(true);
  Cancel();
}

void StreamCall::OnDone() {
  Withdraw(true);
  Ended();
}

}  // namespace embla
