#include "client/transport/unary_connection.h"

#include <utility>

#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/transport/grpc_channel.h"
#include "client/transport/request_bytes.h"
#include "core/wire/reply_codec.h"
#include "core/wire/status_codec.h"

namespace embla::client {
namespace {

constexpr char kLookupMethod[] = "/embla.v1.DataService/Lookup";
constexpr char kUpdateMethod[] = "/embla.v1.DataService/Update";

absl::Status DecodeUpdate(grpc::ByteBuffer& message, NodeReply& reply) {
  absl::StatusOr<wire::UpdateReply> decoded = wire::DecodeUpdateReply(message);
  if (!decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("not a reply to an update: ", decoded.status().message()));
  }
  reply.plan_version = decoded->plan_version;
  reply.refused = std::move(decoded->refused);
  reply.refused_claims = std::move(decoded->refused_claims);
  return absl::OkStatus();
}

absl::Status DecodeLookup(const DataRequest& request, grpc::ByteBuffer& message, NodeReply& reply) {
  const std::span<std::byte> rows = request.reply_rows();
  std::size_t received = 0;
  absl::StatusOr<wire::LookupReply> decoded =
      wire::DecodeLookupReply(message, [&](std::size_t size) -> absl::StatusOr<std::byte*> {
        received = size;
        if (size == rows.size()) return rows.data();
        return absl::InternalError(
            absl::StrCat("the reply has ", size, " bytes of rows, not ", rows.size()));
      });
  if (!decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("not a reply to the lookup: ", decoded.status().message()));
  }
  reply.plan_version = decoded->plan_version;
  reply.refused = std::move(decoded->refused);
  if (received != rows.size() && reply.refused.empty()) {
    return absl::InternalError(absl::StrCat("the reply has no rows, not ", rows.size(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

struct UnaryConnection::Call {
  DataRequest request;
  grpc::ClientContext context;
  grpc::ByteBuffer message;
  grpc::ByteBuffer reply;
  grpc::ClientContext showing_context;
  grpc::ByteBuffer showing_message;
  std::size_t sent_bytes = 0;
  Call* previous = nullptr;
  Call* next = nullptr;
};

UnaryConnection::~UnaryConnection() {
  Close();
  MutexLock lock(mu_);
  while (calls_ != nullptr) idle_.Wait(mu_);
}

SocketPtr UnaryConnection::Send(DataRequest request) {
  auto* call = new Call;
  request.Own();
  call->request = std::move(request);
  call->context.set_deadline(DeadlineOf(call->request.deadline));
  if (call->request.is_lookup()) {
    auto& lookup = std::get<NodeLookup>(call->request.call);
    call->message = wire::EncodeLookupRequest(lookup.batch, PayloadOf(lookup));
  } else {
    auto& update = std::get<NodeUpdate>(call->request.call);
    call->message = wire::EncodeUpdateRequest(update.batch, PayloadOf(update));
  }
  call->sent_bytes = call->message.Length();
  bool closed = false;
  bool is_shown = true;
  {
    MutexLock lock(mu_);
    closed = closed_;
    is_shown = is_shown_ || call->sent_bytes <= kFirstMessageBytesMax;
    if (!closed) {
      call->next = calls_;
      if (calls_ != nullptr) calls_->previous = call;
      calls_ = call;
    }
  }
  if (closed) {
    call->request.done({.status = absl::UnavailableError("the connection was given up")});
    delete call;
    return nullptr;
  }
  if (is_shown) {
    Start(call);
  } else {
    ShowAndStart(call);
  }
  return nullptr;
}

void UnaryConnection::Start(Call* call) {
  stub_.UnaryCall(&call->context, call->request.is_lookup() ? kLookupMethod : kUpdateMethod,
                  grpc::StubOptions(), &call->message, &call->reply,
                  [this, call](const grpc::Status& status) { OnDone(call, status); });
}

void UnaryConnection::ShowAndStart(Call* call) {
  call->showing_context.set_deadline(DeadlineOf(call->request.deadline));
  call->showing_message = wire::EncodeLookupRequest(ShowingLookup(call->request), {});
  stub_.UnaryCall(&call->showing_context, kLookupMethod, grpc::StubOptions(),
                  &call->showing_message, &call->reply, [this, call](const grpc::Status&) {
                    call->reply.Clear();
                    Start(call);  // Start reports any error of the request.
                  });
}

void UnaryConnection::OnDone(Call* call, const grpc::Status& status) {
  NodeReply reply{.status = wire::FromGrpc(status),
                  .sent_bytes = call->sent_bytes,
                  .received_bytes = call->reply.Length()};
  if (reply.status.ok()) {
    reply.status = call->request.is_lookup() ? DecodeLookup(call->request, call->reply, reply)
                                             : DecodeUpdate(call->reply, reply);
  }
  const bool is_ok = reply.status.ok();
  const bool is_unavailable = absl::IsUnavailable(reply.status);
  call->request.done(std::move(reply));
  // After done, and with the call gone: the destructor waits for both, so a channel never goes in
  // the middle of its own callback.
  MutexLock lock(mu_);
  is_shown_ = is_ok || (is_shown_ && !is_unavailable);
  (call->previous == nullptr ? calls_ : call->previous->next) = call->next;
  if (call->next != nullptr) call->next->previous = call->previous;
  delete call;
  idle_.NotifyAll();
}

void UnaryConnection::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  for (Call* call = calls_; call != nullptr; call = call->next) {
    call->showing_context.TryCancel();
    call->context.TryCancel();
  }
}

}  // namespace embla::client
