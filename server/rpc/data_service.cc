#include "server/rpc/data_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/tls/tls.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/reply_codec.h"
#include "core/wire/request_codec.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/arriving_gradients.h"
#include "server/rpc/bounded_method.h"
#include "server/rpc/move_codec.h"
#include "server/rpc/read_rows_call.h"
#include "server/rpc/replica_codec.h"
#include "server/rpc/request_origin.h"

namespace embla {
namespace {

// The bytes of `request`, which gRPC gives to its handler alone, and would keep until the call is
// over: by then, what was decoded from them takes the same memory once more.
grpc::ByteBuffer Take(const grpc::ByteBuffer& request) {
  grpc::ByteBuffer bytes;
  bytes.Swap(const_cast<grpc::ByteBuffer*>(&request));
  return bytes;
}

// One unary call, from its arrival until gRPC has written its answer, or has nobody to write it to.
// Holds the memory of both until then, and deletes itself.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(DataContext& context, MethodMetrics& method, const grpc::CallbackServerContext& call,
            const grpc::ByteBuffer& request, grpc::ByteBuffer* reply)
      : context_(context),
        method_(method),
        connection_(ConnectionOf(call)),
        caller_(CallerOf(call)),
        reply_(reply),
        request_bytes_(request.Length()),
        start_(context.clock.Now()) {}

  const std::optional<Identity>& caller() const { return caller_; }

  // Takes memory for the request and more. False: has answered that there is none.
  bool Admit(LookupBatch& lookup, std::size_t more_bytes) {
    trace_ = context_.traces.Begin(lookup, start_);
    return Admit(lookup.session,
                 lookup.session == SessionId{} ? HolderOf(connection_) : HolderOf(lookup.session),
                 RowsOf(lookup), request_bytes_ + more_bytes);
  }
  bool Admit(UpdateBatch& update) {
    trace_ = context_.traces.Begin(update, start_);
    return Admit(update.session, HolderOf(update), RowsOf(update), request_bytes_);
  }

  // Either ends the call. This may be gone when they return.
  void Answer(const grpc::ByteBuffer& reply) {
    Count(absl::OkStatus(), reply.Length());
    *reply_ = reply;
    Finish(grpc::Status::OK);
  }
  void Fail(const absl::Status& status) {
    Count(status, 0);
    Finish(wire::ToGrpc(context_.Answer(status)));
  }

  void OnDone() override { delete this; }
  // OnDone is so short that it needs no thread of gRPC's executor.
  bool InternalInlineable() override { return true; }

 private:
  ~UnaryCall() override = default;

  void Count(const absl::Status& status, std::size_t reply_bytes) {
    context_.Count(method_, status, start_, request_bytes_, reply_bytes);
    if (trace_ == nullptr) return;
    context_.traces.End(*trace_, context_.clock.Now(), status, request_bytes_, reply_bytes);
  }

  bool Admit(SessionId session, const InFlightHolder& holder, std::size_t rows, std::size_t bytes) {
    ShowOrigin(context_.node.sessions(), session, connection_);
    absl::StatusOr<Admission> admission = context_.Admit(caller_, holder, rows, bytes);
    if (!admission.ok()) {
      Fail(admission.status());
      return false;
    }
    admission_ = *std::move(admission);
    return true;
  }

  DataContext& context_;   // Not owned; outlives this object.
  MethodMetrics& method_;  // Likewise.
  const ConnectionId connection_;
  const std::optional<Identity> caller_;
  grpc::ByteBuffer* const reply_;  // gRPC's, until Finish.
  const std::size_t request_bytes_;
  const absl::Time start_;
  Admission admission_;
  RequestTracePtr trace_;
};

// A call may state its span beside its request, as instrumented clients of gRPC do.
template <typename Batch>
void TakeTrace(const grpc::CallbackServerContext& call, Batch& batch) {
  if (batch.trace.is_set()) return;
  const auto stated = call.client_metadata().find("traceparent");
  if (stated == call.client_metadata().end()) return;
  batch.trace = TraceContext::Parse({stated->second.data(), stated->second.size()});
}

void FillReply(const SyncResult& result, v1::SyncReply& reply) {
  reply.set_plan_version(ToInt(result.plan_version));
  for (const TableSync& table : result.tables) {
    v1::TableSync& out = *reply.add_tables();
    out.set_table_id(ToInt(table.table));
    out.set_replica_groups(table.replica_groups);
    out.set_values(table.values);
    out.set_divergence_max(table.divergence_max);
    out.set_squares(table.squares);
    for (const AveragedRows& averaged : table.averaged) {
      v1::AveragedRows& rows = *out.add_averaged();
      rows.set_column_begin(averaged.columns.begin);
      rows.set_column_end(averaged.columns.end);
      rows.set_row_begin(averaged.rows.begin);
      rows.set_row_end(averaged.rows.end);
    }
  }
}

}  // namespace

DataService::DataService(ShardNode& node, BufferPool& pool, Metrics* metrics,
                         const DataServiceOptions& options)
    : context_(node, pool, metrics, options),
      read_threads_(options.read_threads, options.reads_queued_max) {
  if (options.data_sockets) {
    absl::StatusOr<std::unique_ptr<DataSockets>> sockets =
        DataSockets::Start(context_, streams_, metrics);
    if (sockets.ok()) {
      sockets_ = *std::move(sockets);
    } else {
      LogWarning("rpc", Message(sockets.status()), ": clients use gRPC alone");
    }
  }
  // In the order of proto/embla/v1/data.proto.
  MarkMethodCallback(4, BoundedUnary(this, &DataService::Sync));
  MarkMethodCallback(5, BoundedUnary(this, &DataService::Greet));
}

ConnectionAcceptor::TakeFrames DataService::TakesFrames() {
  if (sockets_ == nullptr) return {};
  return [this](FileDescriptor socket) { sockets_->Take(std::move(socket)); };
}

absl::Time DataService::DeadlineOf(const grpc::CallbackServerContext& call) const {
  const std::chrono::system_clock::time_point deadline = call.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return context_.clock.Now() + context_.options.deadline_default;
  }
  // gRPC goes by the machine's clock.
  const absl::Duration left = absl::FromChrono(deadline) - absl::Now();
  return context_.clock.Now() + std::min(left, context_.options.deadline_max);
}

grpc::ServerUnaryReactor* DataService::Lookup(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* reply) {
  auto* const unary = new UnaryCall(context_, context_.lookup, *call, *request, reply);
  grpc::ByteBuffer bytes = Take(*request);
  absl::StatusOr<wire::LookupCall> lookup =
      wire::DecodeLookupRequest(bytes, context_.pool, context_.options.limits);
  if (!lookup.ok()) {
    unary->Fail(lookup.status());
    return unary;
  }
  if (const absl::Status may = context_.CheckTables(unary->caller(), lookup->batch); !may.ok()) {
    unary->Fail(may);
    return unary;
  }
  const absl::StatusOr<SessionId> origin =
      OriginOf(context_.node.sessions(), lookup->batch.session, lookup->batch.proof);
  if (!origin.ok()) {
    unary->Fail(origin.status());
    return unary;
  }
  lookup->batch.session = *origin;
  TakeTrace(*call, lookup->batch);
  if (!unary->Admit(lookup->batch, lookup->reply_bytes + lookup->staged_bytes)) return unary;
  context_.node.Lookup(
      std::move(lookup->batch), DeadlineOf(*call), LookupFrames{},
      [unary](absl::StatusOr<LookupResult> result) {
        if (!result.ok()) return unary->Fail(result.status());
        unary->Answer(wire::EncodeLookupReply(
            {.plan_version = result->plan_version, .refused = std::move(result->refused)},
            std::move(result->rows)));
      });
  return unary;
}

grpc::ServerUnaryReactor* DataService::Update(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* reply) {
  auto* const unary = new UnaryCall(context_, context_.update, *call, *request, reply);
  grpc::ByteBuffer bytes = Take(*request);
  ArrivingGradients gradients;
  absl::StatusOr<UpdateBatch> update =
      wire::DecodeUpdateRequest(bytes, context_.pool, context_.options.limits, gradients.filled());
  if (!update.ok()) {
    unary->Fail(update.status());
    return unary;
  }
  gradients.NoteIn(*update);
  absl::Status granted = context_.node.sessions().Verify(update->session, update->proof);
  if (granted.ok()) granted = context_.CheckTables(unary->caller(), *update);
  if (!granted.ok()) {
    unary->Fail(granted);
    return unary;
  }
  TakeTrace(*call, *update);
  if (!unary->Admit(*update)) return unary;
  context_.node.Update(
      *std::move(update), DeadlineOf(*call), [unary](absl::StatusOr<UpdateResult> result) {
        if (!result.ok()) return unary->Fail(result.status());
        unary->Answer(wire::EncodeUpdateReply({.plan_version = result->plan_version,
                                               .duplicate = result->duplicate,
                                               .refused = result->refused,
                                               .refused_claims = result->refused_claims}));
      });
  return unary;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* DataService::Stream(
    grpc::CallbackServerContext* call) {
  return new StreamCall(context_, streams_, sockets_.get(), *call);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DataService::ReadRows(grpc::CallbackServerContext* call,
                                                                  const grpc::ByteBuffer* request) {
  return ReadRowsCall::Start(context_, read_threads_, *request, CallerOf(*call),
                             HolderOf(ConnectionOf(*call)), DeadlineOf(*call));
}

grpc::ServerUnaryReactor* DataService::Sync(grpc::CallbackServerContext* call,
                                            const v1::SyncRequest* request, v1::SyncReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const absl::Time start = context_.clock.Now();
  const auto finish = [this, reactor, reply, start,
                       bytes = request->ByteSizeLong()](const absl::Status& status) {
    context_.Count(context_.sync, status, start, bytes, status.ok() ? reply->ByteSizeLong() : 0);
    reactor->Finish(wire::ToGrpc(status));
  };
  const auto tables = static_cast<std::uint32_t>(request->table_ids_size());
  if (tables == 0 || tables > context_.options.limits.parts_max) {
    finish(absl::InvalidArgumentError(absl::StrCat("request names ", tables, " tables, 1 to ",
                                                   context_.options.limits.parts_max,
                                                   " are possible")));
    return reactor;
  }
  ShardNode::SyncQuery query;
  query.plan_version = PlanVersion{request->plan_version()};
  for (const std::uint32_t id : request->table_ids()) query.tables.push_back(TableId{id});
  if (const absl::Status may = context_.CheckTables(CallerOf(*call), query.tables); !may.ok()) {
    finish(may);
    return reactor;
  }
  context_.node.Sync(query, DeadlineOf(*call),
                     [reply, finish](const absl::StatusOr<SyncResult>& result) {
                       if (result.ok()) FillReply(*result, *reply);
                       finish(result.status());
                     });
  return reactor;
}

absl::Status DataService::CheckPeer(const wire::PeerProof& proof,
                                    const grpc::CallbackServerContext& call) const {
  EMBLA_RETURN_IF_ERROR(context_.CheckPeer(proof, CallerOf(call)));
  ShowPeer(ConnectionOf(call));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* DataService::Greet(grpc::CallbackServerContext* call,
                                             const v1::PeerGreeting* request,
                                             v1::PeerWelcome* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  absl::Status greeted = CheckName(CallerOf(*call), "node", request->node());
  if (context_.peers == nullptr) greeted = absl::PermissionDeniedError("this node has no peers");
  if (greeted.ok()) greeted = context_.peers->Greet(*request, *reply);
  if (greeted.ok()) ShowPeer(ConnectionOf(*call));
  if (greeted.ok() && request->asks_data_socket() && sockets_ != nullptr) {
    const wire::DataSocketOffer offer = sockets_->OfferToPeer(CallerOf(*call));
    v1::DataSocket& socket = *reply->mutable_data_socket();
    socket.set_address(offer.address);
    socket.set_ticket(offer.ticket);
    socket.set_by_port(offer.by_port);
    reply->set_moves_by_socket(true);
  }
  reactor->Finish(wire::ToGrpc(greeted));
  return reactor;
}

grpc::ServerUnaryReactor* DataService::Replicate(grpc::CallbackServerContext* call,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* reply) {
  auto* const unary = new UnaryCall(context_, context_.replicate, *call, *request, reply);
  grpc::ByteBuffer bytes = Take(*request);
  absl::StatusOr<wire::ReplicateCall> replicate =
      wire::DecodeReplicateRequest(bytes, context_.pool, context_.options.limits);
  if (!replicate.ok()) {
    unary->Fail(replicate.status());
    return unary;
  }
  if (const absl::Status known = CheckPeer(replicate->head.peer, *call); !known.ok()) {
    unary->Fail(known);
    return unary;
  }
  absl::StatusOr<ReplicaMessage> message = FromWire(*std::move(replicate));
  if (!message.ok()) {
    unary->Fail(message.status());
    return unary;
  }
  context_.node.ApplyReplicated(*std::move(message), DeadlineOf(*call),
                                [unary](absl::StatusOr<ReplicaAck> ack) {
                                  if (!ack.ok()) return unary->Fail(ack.status());
                                  unary->Answer(wire::EncodeReplicateReply(ToWire(*ack)));
                                });
  return unary;
}

grpc::ServerUnaryReactor* DataService::Move(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* reply) {
  auto* const unary = new UnaryCall(context_, context_.move, *call, *request, reply);
  grpc::ByteBuffer bytes = Take(*request);
  absl::StatusOr<MoveCall> move = DecodeMove(bytes, context_.pool, context_.options.limits);
  absl::Status taken = move.ok() ? CheckPeer(move->peer, *call) : move.status();
  if (taken.ok()) taken = context_.TakeMove(std::move(move->message));
  if (taken.ok()) {
    unary->Answer(grpc::ByteBuffer(nullptr, 0));
  } else {
    unary->Fail(taken);
  }
  return unary;
}

}  // namespace embla
