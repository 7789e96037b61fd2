#include "server/rpc/request_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/rpc/request_origin.h"

namespace embla {

void OpenStreams::Add(RequestStream* stream) {
  MutexLock lock(mu_);
  streams_.push_back(stream);
  if (draining_) stream->Drain(absl::UnavailableError("the node is stopping"));
}

void OpenStreams::Remove(RequestStream* stream) {
  MutexLock lock(mu_);
  std::erase(streams_, stream);
}

void OpenStreams::DrainAll() {
  MutexLock lock(mu_);
  draining_ = true;
  for (RequestStream* const stream : streams_) {
    stream->Drain(absl::UnavailableError("the node is stopping"));
  }
}

RequestStream::RequestStream(DataContext& context, OpenStreams& open, StreamCaller caller,
                             Gauge gauge)
    : context_(context), open_(open), caller_(std::move(caller)), gauge_(gauge) {
  gauge_.Add(1);
}

void RequestStream::Open() {
  open_.Add(this);
  MutexLock lock(mu_);
  ReadMore();
}

void RequestStream::Drain(const absl::Status& why) {
  MutexLock lock(mu_);
  if (reads_done_) return;
  reads_done_ = true;
  result_ = why;
  FinishIfIdle();
}

bool RequestStream::BeginBeside() {
  MutexLock lock(mu_);
  if (finished_ || reads_done_) return false;
  ++executing_;
  return true;
}

void RequestStream::EndBeside() {
  bool delete_this = false;
  {
    MutexLock lock(mu_);
    --executing_;
    FinishIfIdle();
    delete_this = ended_ && executing_ == 0;
  }
  if (delete_this) delete this;
}

void RequestStream::EndReads() {
  MutexLock lock(mu_);
  reads_done_ = true;
  reading_ = false;
  FinishIfIdle();
}

bool RequestStream::TakeRequest() {
  MutexLock lock(mu_);
  if (reads_done_) {
    reading_ = false;
    FinishIfIdle();
    return false;
  }
  // reading_ stays set: a reply's ReadMore may not bring the next request before this one is taken.
  ++executing_;
  return true;
}

void RequestStream::FinishTaking(const absl::Status& status) {
  MutexLock lock(mu_);
  --executing_;
  reading_ = false;
  if (!status.ok()) {
    reads_done_ = true;
    result_ = status;
  }
  ReadMore();
  FinishIfIdle();
}

RequestStream::Arrival RequestStream::Begin(wire::StreamRequest& request, std::size_t bytes) {
  Arrival arrival{.in_flight = {.sequence = request.sequence,
                                .bytes = bytes,
                                .admission = nullptr,
                                .request_bytes = bytes,
                                .start = context_.clock.Now()},
                  .status = request.call.status()};
  InFlight& in_flight = arrival.in_flight;
  arrival.deadline =
      in_flight.start + std::min(request.deadline_ms == 0 ? context_.options.deadline_default
                                                          : absl::Milliseconds(request.deadline_ms),
                                 context_.options.deadline_max);
  absl::Status& status = arrival.status;
  if (status.ok()) status = CheckOrigin(request);
  Need need{.holder = HolderOf(caller_.connection)};
  if (status.ok()) {
    need.holder = ShownHolder(*request.call);
    std::visit(
        [&](auto& call) {
          need.rows = RowsOf(wire::BatchOf(call));
          in_flight.trace = context_.traces.Begin(wire::BatchOf(call), in_flight.start);
        },
        *request.call);
    if (request.asks_data_socket && need.holder.has_session) {
      if (const auto offer = OfferDataSocket()) Send({wire::EncodeStreamOffer(*offer)});
    }
  }
  if (request.call.ok() && !request.is_update) {
    const auto& lookup = std::get<wire::LookupCall>(*request.call);
    in_flight.bytes += lookup.reply_bytes;
    need.bytes = lookup.staged_bytes;
  }
  need.bytes += in_flight.bytes;
  const bool reserves = status.ok() && request.reserve.bytes > 0;
  if (reserves) {
    TakeRoom(request.sequence, {});  // The same question may have been asked before.
    need.rows = request.reserve.ids;
    need.bytes = request.reserve.bytes;
  }
  const absl::Status admitted = Admit(in_flight, need);
  if (status.ok()) status = admitted;
  if (status.ok() && reserves) status = KeepRoom(in_flight, need, arrival.deadline);
  return arrival;
}

void RequestStream::Execute(Arrival arrival, wire::StreamRequest request) {
  const InFlight& in_flight = arrival.in_flight;
  const bool only_asks = request.reserve.bytes > 0;
  if (!arrival.status.ok()) {
    Reply(in_flight, request.is_update || only_asks ? context_.update : context_.lookup,
          arrival.status,
          {wire::EncodeStreamError(in_flight.sequence, context_.Answer(arrival.status))});
  } else if (only_asks) {
    const PlanVersion plan_version = context_.node.plan()->version();
    Answer(in_flight, wire::EncodeStreamLookupReply(
                          in_flight.sequence, {.plan_version = plan_version}, SharedBuffer(), {}));
  } else if (request.is_update) {
    ExecuteUpdate(std::get<UpdateBatch>(*std::move(request.call)), in_flight, arrival.deadline);
  } else {
    ExecuteLookup(std::get<wire::LookupCall>(*std::move(request.call)), in_flight,
                  arrival.deadline);
  }
}

absl::Status RequestStream::CheckOrigin(wire::StreamRequest& request) {
  SessionGate& gate = context_.node.sessions();
  if (const auto* const update = std::get_if<UpdateBatch>(&*request.call)) {
    EMBLA_RETURN_IF_ERROR(caller_.may_update);
    EMBLA_RETURN_IF_ERROR(context_.CheckTables(caller_.identity, *update));
    return gate.Verify(update->session, update->proof);
  }
  LookupBatch& batch = std::get<wire::LookupCall>(*request.call).batch;
  if (request.reserve.bytes > 0) {
    EMBLA_RETURN_IF_ERROR(caller_.may_update);
    return gate.Verify(batch.session, batch.proof);
  }
  EMBLA_RETURN_IF_ERROR(context_.CheckTables(caller_.identity, batch));
  EMBLA_ASSIGN_OR_RETURN(batch.session, OriginOf(gate, batch.session, batch.proof));
  return absl::OkStatus();
}

InFlightHolder RequestStream::ShownHolder(const std::variant<wire::LookupCall, UpdateBatch>& call) {
  const auto* const update = std::get_if<UpdateBatch>(&call);
  const SessionId session =
      update != nullptr ? update->session : std::get<wire::LookupCall>(call).batch.session;
  ShowOrigin(context_.node.sessions(), session, caller_.connection);
  if (update != nullptr) return HolderOf(*update);
  return session == SessionId{} ? HolderOf(caller_.connection) : HolderOf(session);
}

absl::Status RequestStream::Admit(InFlight& request, const Need& need) {
  absl::Status status;
  request.admission = TakeRoom(request.sequence, need);
  if (request.admission == nullptr) {
    absl::StatusOr<Admission> admission =
        context_.Admit(caller_.identity, need.holder, need.rows, need.bytes);
    status = admission.status();
    if (status.ok()) request.admission = std::make_shared<Admission>(*std::move(admission));
  }
  MutexLock lock(mu_);
  ++executing_;
  ++in_flight_;
  in_flight_bytes_ += request.bytes;
  return status;
}

std::shared_ptr<Admission> RequestStream::TakeRoom(std::uint64_t sequence, const Need& need) {
  MutexLock lock(mu_);
  const auto found = rooms_.find(sequence);
  if (found == rooms_.end()) return nullptr;
  const Room room = std::move(found->second);
  rooms_.erase(found);
  const bool is_enough = room.need.holder == need.holder && need.rows <= room.need.rows &&
                         need.bytes <= room.need.bytes;
  return is_enough ? room.admission : nullptr;
}

absl::Status RequestStream::KeepRoom(const InFlight& request, const Need& need, absl::Time until) {
  MutexLock lock(mu_);
  absl::erase_if(rooms_, [&](const auto& each) { return each.second.until < request.start; });
  if (rooms_.size() >= context_.options.stream_requests_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the stream has asked for room for ", rooms_.size(),
                     " updates that have not come; send them first"));
  }
  rooms_.emplace(request.sequence,
                 Room{.need = need, .admission = request.admission, .until = until});
  return absl::OkStatus();
}

void RequestStream::ExecuteLookup(wire::LookupCall call, const InFlight& request,
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
      std::move(call.batch), deadline, std::move(frames),
      [this, request, frame_bytes_max](absl::StatusOr<LookupResult> result) {
        InFlight answered = request;
        std::vector<wire::SplitMessage> messages;
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
        Reply(answered, context_.lookup, result.status(), std::move(messages));
      });
}

void RequestStream::ExecuteUpdate(UpdateBatch batch, const InFlight& request, absl::Time deadline) {
  context_.node.Update(
      std::move(batch), deadline, [this, request](absl::StatusOr<UpdateResult> result) {
        std::vector<wire::SplitMessage> messages;
        messages.push_back(
            result.ok()
                ? wire::EncodeStreamUpdateReply(request.sequence,
                                                {.plan_version = result->plan_version,
                                                 .duplicate = result->duplicate,
                                                 .refused = result->refused,
                                                 .refused_claims = result->refused_claims})
                : wire::EncodeStreamError(request.sequence, context_.Answer(result.status())));
        Reply(request, context_.update, result.status(), std::move(messages));
      });
}

void RequestStream::Send(std::vector<wire::SplitMessage> messages) {
  std::vector<wire::SplitMessage> writes;
  {
    MutexLock lock(mu_);
    if (broken_) return;
    for (wire::SplitMessage& message : messages) writes_.push_back({.message = std::move(message)});
    writes = TakeWrites();
  }
  Start(std::move(writes));
}

void RequestStream::Reply(const InFlight& request, MethodMetrics& method,
                          const absl::Status& status, std::vector<wire::SplitMessage> messages) {
  std::size_t reply_bytes = request.sent_bytes;
  for (const wire::SplitMessage& message : messages) reply_bytes += message.bytes();
  context_.Count(method, status, request.start, request.request_bytes, reply_bytes);
  if (request.trace != nullptr) {
    context_.traces.End(*request.trace, context_.clock.Now(), status, request.request_bytes,
                        reply_bytes);
  }
  Answer(request, std::move(messages));
}

void RequestStream::Answer(const InFlight& request, std::vector<wire::SplitMessage> messages) {
  std::vector<wire::SplitMessage> writes;
  {
    MutexLock lock(mu_);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const bool last = i + 1 == messages.size();
      writes_.push_back({.message = std::move(messages[i]),
                         .released_bytes = last ? request.bytes : 0,
                         .admission = request.admission,
                         .last = last});
    }
    if (broken_) Abandon();
    writes = TakeWrites();
  }
  Start(std::move(writes));
  bool delete_this = false;
  {
    // Only now: it has kept this alive.
    MutexLock lock(mu_);
    --executing_;
    ReadMore();
    FinishIfIdle();
    delete_this = ended_ && executing_ == 0;
  }
  if (delete_this) delete this;
}

void RequestStream::Written(bool ok) {
  std::vector<wire::SplitMessage> writes;
  Write written;  // Its memory is freed without the lock.
  {
    MutexLock lock(mu_);
    --writing_;
    written = std::move(writes_.front());
    writes_.pop_front();
    Release(written);
    if (!ok) broken_ = true;
    if (broken_) Abandon();
    writes = TakeWrites();
    ReadMore();
    FinishIfIdle();
  }
  Start(std::move(writes));
}

void RequestStream::Start(std::vector<wire::SplitMessage> writes) {
  for (wire::SplitMessage& write : writes) StartWrite(std::move(write));
}

void RequestStream::Cancel() {
  MutexLock lock(mu_);
  broken_ = true;
  reads_done_ = true;
  Abandon();
  FinishIfIdle();
}

void RequestStream::Ended() {
  open_.Remove(this);
  gauge_.Add(-1);
  bool delete_this = false;
  {
    MutexLock lock(mu_);
    broken_ = true;
    reads_done_ = true;
    writing_ = 0;
    Abandon();
    ended_ = true;
    finished_ = true;
    delete_this = executing_ == 0;
  }
  if (delete_this) delete this;
}

void RequestStream::ReadMore() {
  const DataServiceOptions& options = context_.options;
  const bool room = in_flight_ == 0 || (in_flight_ < options.stream_requests_max &&
                                        in_flight_bytes_ < options.stream_bytes_max);
  if (reading_ || reads_done_ || broken_ || !room) return;
  reading_ = true;
  StartRead();
}

std::vector<wire::SplitMessage> RequestStream::TakeWrites() {
  std::vector<wire::SplitMessage> taken;
  if (broken_ || finished_) return taken;
  const std::size_t max = std::min(writes_.size(), writes_max());
  while (writing_ < max) taken.push_back(std::move(writes_[writing_++].message));
  return taken;
}

void RequestStream::FinishIfIdle() {
  if (finished_ || writing_ > 0 || executing_ > 0 || !writes_.empty()) return;
  if (!reads_done_ && !broken_) return;
  finished_ = true;
  Finish(result_);
}

// Forgets the replies that nobody will read, but not those that the transport holds.
void RequestStream::Abandon() {
  while (writes_.size() > writing_) {
    Release(writes_.back());
    writes_.pop_back();
  }
}

void RequestStream::Release(const Write& write) {
  in_flight_bytes_ -= write.released_bytes;
  if (write.last) --in_flight_;
}

}  // namespace embla
