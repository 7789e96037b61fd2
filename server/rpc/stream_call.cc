#include "server/rpc/stream_call.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/tls/tls.h"
#include "core/wire/reply_codec.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/request_origin.h"

namespace embla {

void OpenStreams::Add(StreamCall* stream) {
  MutexLock lock(mu_);
  streams_.push_back(stream);
  if (draining_) stream->Drain();
}

void OpenStreams::Remove(StreamCall* stream) {
  MutexLock lock(mu_);
  std::erase(streams_, stream);
}

void OpenStreams::DrainAll() {
  MutexLock lock(mu_);
  draining_ = true;
  for (StreamCall* const stream : streams_) stream->Drain();
}

StreamCall::StreamCall(DataContext& context, OpenStreams& open,
                       const grpc::CallbackServerContext& call)
    : context_(context),
      open_(open),
      connection_(ConnectionOf(call)),
      caller_(CallerOf(call)),
      may_update_(CheckAccess("/embla.v1.DataService/Update", caller_)) {
  context_.shard.streams.Add(1);
  open_.Add(this);
  MutexLock lock(mu_);
  ReadMore();
}

void StreamCall::Drain() {
  MutexLock lock(mu_);
  if (reads_done_) return;
  reads_done_ = true;
  result_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the node is stopping");
  FinishIfIdle();
}

void StreamCall::OnReadDone(bool ok) {
  {
    MutexLock lock(mu_);
    if (!ok) reads_done_ = true;
    if (reads_done_) {
      reading_ = false;
      FinishIfIdle();
      return;
    }
    ++executing_;  // Keeps this alive below.
  }
  // reading_ stays set: a reply's ReadMore may not read into received_ before it is decoded, nor
  // let the next request overtake this one.
  const std::size_t request_bytes = received_.Length();
  absl::StatusOr<wire::StreamRequest> request =
      wire::DecodeStreamRequest(received_, context_.pool, context_.options.limits);
  received_.Clear();
  const absl::Status decoded = request.status();
  if (decoded.ok()) {
    Execute(*std::move(request), request_bytes);
  }
  MutexLock lock(mu_);
  --executing_;
  reading_ = false;
  if (!decoded.ok()) {
    reads_done_ = true;
    result_ = wire::ToGrpc(decoded);
  }
  ReadMore();
  FinishIfIdle();
}

void StreamCall::Execute(wire::StreamRequest request, std::size_t request_bytes) {
  InFlight in_flight{.sequence = request.sequence,
                     .bytes = request_bytes,
                     .admission = nullptr,
                     .request_bytes = request_bytes,
                     .start = context_.clock.Now()};
  const absl::Time deadline =
      in_flight.start + std::min(request.deadline_ms == 0 ? context_.options.deadline_default
                                                          : absl::Milliseconds(request.deadline_ms),
                                 context_.options.deadline_max);
  wire::LookupCall* lookup = nullptr;
  if (request.call.ok()) lookup = std::get_if<wire::LookupCall>(&*request.call);
  if (lookup != nullptr) in_flight.bytes += lookup->reply_bytes;
  absl::Status status = request.call.status();
  if (status.ok()) status = CheckOrigin(*request.call);
  InFlightHolder holder = HolderOf(connection_);
  std::size_t rows = 0;
  if (status.ok()) {
    holder = ShownHolder(*request.call);
    std::visit(
        [&](auto& call) {
          rows = RowsOf(call.batch);
          in_flight.trace = context_.traces.Begin(call.batch, in_flight.start);
        },
        *request.call);
  }
  const absl::Status admitted =
      Admit(in_flight, holder, rows, lookup == nullptr ? 0 : lookup->staged_bytes);
  if (status.ok()) status = admitted;
  if (!status.ok()) {
    Reply(in_flight, request.is_update ? context_.update : context_.lookup, status,
          {wire::EncodeStreamError(in_flight.sequence, context_.Answer(status))});
  } else if (lookup != nullptr) {
    ExecuteLookup(std::move(*lookup), in_flight, deadline);
  } else {
    ExecuteUpdate(std::get<wire::UpdateCall>(*std::move(request.call)), in_flight, deadline);
  }
}

absl::Status StreamCall::CheckOrigin(std::variant<wire::LookupCall, wire::UpdateCall>& call) {
  SessionGate& gate = context_.node.sessions();
  if (const auto* const update = std::get_if<wire::UpdateCall>(&call)) {
    EMBLA_RETURN_IF_ERROR(may_update_);
    EMBLA_RETURN_IF_ERROR(context_.CheckTables(caller_, update->batch));
    return gate.Verify(update->batch.session, update->batch.proof);
  }
  LookupBatch& batch = std::get<wire::LookupCall>(call).batch;
  EMBLA_RETURN_IF_ERROR(context_.CheckTables(caller_, batch));
  EMBLA_ASSIGN_OR_RETURN(batch.session, OriginOf(gate, batch.session, batch.proof));
  return absl::OkStatus();
}

InFlightHolder StreamCall::ShownHolder(
    const std::variant<wire::LookupCall, wire::UpdateCall>& call) {
  const auto* const update = std::get_if<wire::UpdateCall>(&call);
  const SessionId session =
      update != nullptr ? update->batch.session : std::get<wire::LookupCall>(call).batch.session;
  ShowOrigin(context_.node.sessions(), session, connection_);
  if (update != nullptr) return HolderOf(update->batch);
  return session == SessionId{} ? HolderOf(connection_) : HolderOf(session);
}

absl::Status StreamCall::Admit(InFlight& request, const InFlightHolder& holder, std::size_t rows,
                               std::size_t bytes_beside) {
  absl::StatusOr<Admission> admission =
      context_.Admit(caller_, holder, rows, request.bytes + bytes_beside);
  if (admission.ok()) request.admission = std::make_shared<Admission>(*std::move(admission));
  MutexLock lock(mu_);
  ++executing_;
  ++in_flight_;
  in_flight_bytes_ += request.bytes;
  return admission.status();
}

void StreamCall::ExecuteLookup(wire::LookupCall call, const InFlight& request,
                               absl::Time deadline) {
  const std::uint32_t frame_bytes_max = call.frame_bytes_max;
  LookupFrames frames;
  if (frame_bytes_max > 0) {
    frames.bytes = frame_bytes_max;
    frames.send = [this, sequence = request.sequence, frame_bytes_max](PlanVersion plan_version,
                                                                       const SharedBuffer& rows) {
      Send(wire::EncodeStreamLookupReply(sequence, {.plan_version = plan_version}, rows,
                                         {.bytes_max = frame_bytes_max, .more = true}));
    };
  }
  context_.node.Lookup(
      std::move(call.batch), std::move(call.memory), deadline, std::move(frames),
      [this, request, frame_bytes_max](absl::StatusOr<LookupResult> result) {
        InFlight answered = request;
        std::vector<grpc::ByteBuffer> messages;
        if (result.ok()) {
          answered.sent_bytes = result->sent_bytes;
          messages = wire::EncodeStreamLookupReply(
              request.sequence,
              {.plan_version = result->plan_version, .refused = std::move(result->refused)},
              result->rows, {.bytes_max = frame_bytes_max});
        } else {
          messages.push_back(
              wire::EncodeStreamError(request.sequence, context_.Answer(result.status())));
        }
        Reply(answered, context_.lookup, result.status(), messages);
      });
}

void StreamCall::ExecuteUpdate(wire::UpdateCall call, const InFlight& request,
                               absl::Time deadline) {
  context_.node.Update(
      std::move(call.batch), std::move(call.memory), deadline,
      [this, request](absl::StatusOr<UpdateResult> result) {
        std::vector<grpc::ByteBuffer> messages;
        messages.push_back(
            result.ok()
                ? wire::EncodeStreamUpdateReply(request.sequence,
                                                {.plan_version = result->plan_version,
                                                 .duplicate = result->duplicate,
                                                 .refused = result->refused,
                                                 .refused_claims = result->refused_claims})
                : wire::EncodeStreamError(request.sequence, context_.Answer(result.status())));
        Reply(request, context_.update, result.status(), messages);
      });
}

void StreamCall::Send(const std::vector<grpc::ByteBuffer>& messages) {
  MutexLock lock(mu_);
  if (broken_) return;
  for (const grpc::ByteBuffer& message : messages) writes_.push_back({.message = message});
  WriteMore();
}

void StreamCall::Reply(const InFlight& request, MethodMetrics& method, const absl::Status& status,
                       const std::vector<grpc::ByteBuffer>& messages) {
  std::size_t reply_bytes = request.sent_bytes;
  for (const grpc::ByteBuffer& message : messages) reply_bytes += message.Length();
  context_.Count(method, status, request.start, request.request_bytes, reply_bytes);
  if (request.trace != nullptr) {
    context_.traces.End(*request.trace, context_.clock.Now(), status, request.request_bytes,
                        reply_bytes);
  }
  bool delete_this = false;
  {
    MutexLock lock(mu_);
    --executing_;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const bool last = i + 1 == messages.size();
      writes_.push_back({.message = messages[i],
                         .released_bytes = last ? request.bytes : 0,
                         .admission = request.admission,
                         .last = last});
    }
    if (broken_) Abandon();
    WriteMore();
    ReadMore();
    FinishIfIdle();
    delete_this = done_ && executing_ == 0;
  }
  if (delete_this) delete this;
}

void StreamCall::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  Release(writes_.front());
  writes_.pop_front();
  if (!ok) broken_ = true;
  if (broken_) Abandon();
  WriteMore();
  ReadMore();
  FinishIfIdle();
}

void StreamCall::OnCancel() {
  MutexLock lock(mu_);
  broken_ = true;
  reads_done_ = true;
  Abandon();
  FinishIfIdle();
}

void StreamCall::OnDone() {
  open_.Remove(this);
  context_.shard.streams.Add(-1);
  bool delete_this = false;
  {
    MutexLock lock(mu_);
    done_ = true;
    delete_this = executing_ == 0;
  }
  if (delete_this) delete this;
}

void StreamCall::ReadMore() {
  const DataServiceOptions& options = context_.options;
  const bool room = in_flight_ == 0 || (in_flight_ < options.stream_requests_max &&
                                        in_flight_bytes_ < options.stream_bytes_max);
  if (reading_ || reads_done_ || broken_ || !room) return;
  reading_ = true;
  StartRead(&received_);
}

void StreamCall::WriteMore() {
  if (writing_ || writes_.empty() || broken_ || finished_) return;
  writing_ = true;
  StartWrite(&writes_.front().message);
}

void StreamCall::FinishIfIdle() {
  if (finished_ || writing_ || executing_ > 0 || !writes_.empty()) return;
  if (!reads_done_ && !broken_) return;
  finished_ = true;
  Finish(result_);
}

// Forgets the replies that nobody will read, but not the one that gRPC holds.
void StreamCall::Abandon() {
  while (writes_.size() > (writing_ ? 1 : 0)) {
    Release(writes_.back());
    writes_.pop_back();
  }
}

void StreamCall::Release(const Write& write) {
  in_flight_bytes_ -= write.released_bytes;
  if (write.last) --in_flight_;
}

}  // namespace embla
