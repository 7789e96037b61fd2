#include "server/rpc/socket_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "embla/v1/data.pb.h"

namespace embla {

void SocketStream::Serve(std::unique_ptr<Link> link, Poller& poller, DataContext& context,
                         OpenStreams& open, DataSockets& sockets, const std::string& ticket,
                         RequestStream& stream) {
  auto* const served = new SocketStream(context, open, sockets, ticket, stream);
  absl::StatusOr<std::shared_ptr<FrameSocket>> opened = FrameSocket::Open(
      std::move(link), *served, poller, wire::TextBytesMax(context.options.limits));
  if (!opened.ok()) return served->OnClosed(opened.status());
  served->socket_ = *std::move(opened);
  sockets.Add(ticket, *served);
  served->socket_->Send(wire::MakeFrame(""));
  served->Open();
}

void SocketStream::StartWrite(wire::SplitMessage message) {
  socket_->Send(wire::MakeFrame(message));
}

absl::Status SocketStream::BeginFrame(std::string_view text,
                                      std::span<const wire::FrameArray> arrays,
                                      std::span<std::byte*> places) {
  if (!TakeRequest()) return absl::OkStatus();  // It is dropped, and the last one that is read.
  std::size_t array_bytes = 0;
  for (const wire::FrameArray& array : arrays) array_bytes += array.bytes;
  absl::StatusOr<wire::StreamRequest> request =
      wire::DecodeStreamText(text, context_.options.limits);
  if (!request.ok()) {
    FinishTaking(request.status());
    return request.status();
  }
  if (array_bytes > context_.options.limits.request_bytes_max) {
    request->call = absl::InvalidArgumentError(
        absl::StrCat("payloads of ", array_bytes, " bytes, at most ",
                     context_.options.limits.request_bytes_max, " allowed"));
  }
  // Arrays of a request that is refused take no memory.
  Incoming& incoming =
      incoming_.emplace(Begin(*request, text.size() + array_bytes), *std::move(request));
  if (!incoming.arrival.status.ok()) return absl::OkStatus();
  wire::RequestMemory& memory = incoming.memory.emplace(context_.pool, array_bytes);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto number = static_cast<int>(arrays[i].number);
    const bool is_seal = i + 1 == arrays.size() && arrays[i].number == wire::Seal::kArray &&
                         arrays[i].bytes == sizeof(incoming.seal);
    if (is_seal) places[i] = reinterpret_cast<std::byte*>(&incoming.seal);
    if (!wire::IsArray(incoming.request.is_update, number)) continue;
    absl::StatusOr<std::byte*> place = memory.Place(number, arrays[i].bytes);
    if (!place.ok()) {
      incoming.arrival.status = place.status();
      break;
    }
    places[i] = *place;
    if (!incoming.request.is_update || number != v1::UpdateRequest::kGradientsFieldNumber) continue;
    const DType dtype = std::get<UpdateBatch>(*incoming.request.call).wire_dtype;
    incoming.gradients_array = i;
    incoming.gradients.emplace(*place, arrays[i].bytes, dtype);
  }
  return absl::OkStatus();
}

void SocketStream::Filled(std::size_t array, std::size_t filled) {
  if (!incoming_->gradients.has_value() || array != incoming_->gradients_array) return;
  incoming_->gradients->Filled(filled);
}

absl::Status SocketStream::EndFrame() {
  if (!incoming_.has_value()) return absl::OkStatus();
  Incoming incoming = *std::exchange(incoming_, std::nullopt);
  // Its arrays may not be what was sent.
  if (incoming.seal != wire::Seal::kWhole) {
    incoming.arrival.status = absl::CancelledError("the request was taken back on its way");
  }
  if (incoming.arrival.status.ok()) {
    if (incoming.gradients.has_value()) {
      std::get<UpdateBatch>(*incoming.request.call).gradients_are_finite =
          incoming.gradients->are_finite();
    }
    incoming.arrival.status =
        wire::AttachArrays(*std::move(incoming.memory), *incoming.request.call);
  }
  Execute(std::move(incoming.arrival), std::move(incoming.request));
  FinishTaking(absl::OkStatus());
  return absl::OkStatus();
}

void SocketStream::OnSent() {
  if (std::exchange(is_welcomed_, true)) Written(true);
}

void SocketStream::OnClosed(const absl::Status& why) {
  sockets_.Remove(ticket_);
  if (incoming_.has_value()) {
    Incoming incoming = *std::exchange(incoming_, std::nullopt);
    incoming.arrival.status = why;
    Execute(std::move(incoming.arrival), std::move(incoming.request));
    FinishTaking(why);
  }
  Ended();
}

}  // namespace embla
