#include "client/transport/grpc_node_channel.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>

#include "client/transport/grpc_channel.h"
#include "client/transport/in_flight_gate.h"
#include "client/transport/stream_connection.h"
#include "client/transport/unary_connection.h"
#include "core/base/buffer.h"
#include "core/base/status_macros.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.grpc.pb.h"
#include "embla/v1/inspect.grpc.pb.h"

namespace embla::client {
namespace {

// One call, awaited.
template <typename Stub, typename Request, typename Reply>
absl::StatusOr<Reply> Ask(Stub& stub,
                          grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                       Reply*),
                          const Request& request, absl::Time deadline) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineOf(deadline));
  Reply reply;
  const absl::Status status = wire::FromGrpc((stub.*method)(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

// Hands the messages of a stream to `take` until it returns an error, which ends the call.
template <typename Reply, typename Take>
absl::Status TakeAll(grpc::ClientContext& context, grpc::ClientReader<Reply>& reader,
                     const Take& take) {
  Reply reply;
  absl::Status status;
  while (status.ok() && reader.Read(&reply)) status = take(reply);
  if (!status.ok()) context.TryCancel();
  const absl::Status finish = wire::FromGrpc(reader.Finish());
  return status.ok() ? finish : status;
}

// Aligned, as decoding needs it.
Buffer AlignedCopy(const std::string& bytes) {
  Buffer block = Buffer::Allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(block.data()));
  return block;
}

std::shared_ptr<grpc::Channel> MakeChannelOf(const std::string& address,
                                             const GrpcNodeOptions& options) {
  return MakeChannel(address, options.tls, {.role = Role::kNode, .name = options.name});
}

class GrpcNodeChannel final : public NodeChannel {
 public:
  GrpcNodeChannel(const std::string& address, const GrpcNodeOptions& options, Timer& timer)
      : timer_(timer),
        gate_(options.in_flight_bytes_max, timer,
              [this](DataRequest request) { return Start(std::move(request)); }),
        reads_channel_(MakeChannelOf(address, options)),
        data_(reads_channel_),
        inspect_(reads_channel_) {
    DataSocketOptions sockets;
    sockets.taker = {.node = {.role = Role::kNode, .name = options.name},
                     .on_this_host = options.transport == Transport::kAuto};
    // Without memory for it, calls go by gRPC.
    if (absl::StatusOr<TlsContext> context = ClientContext(options.tls);
        context.ok() && options.transport != Transport::kStream) {
      sockets.poller = options.poller;
      sockets.taker.tls = *std::move(context);
    }
    for (int i = 0; i < options.connections; ++i) {
      // ReadRows shares the first connection.
      std::shared_ptr<grpc::Channel> channel =
          i == 0 ? reads_channel_ : MakeChannelOf(address, options);
      if (options.transport == Transport::kUnary) {
        connections_.push_back(std::make_unique<UnaryConnection>(std::move(channel)));
      } else {
        connections_.push_back(
            std::make_unique<StreamConnection>(std::move(channel), timer, sockets));
      }
    }
  }

  ~GrpcNodeChannel() override { Close(); }

  SocketPtr Lookup(NodeLookup request, absl::Time deadline, Done done) override {
    return gate_.Enter({std::move(request), deadline, std::move(done)});
  }

  SocketPtr Update(NodeUpdate request, absl::Time deadline, Done done) override {
    return gate_.Enter({std::move(request), deadline, std::move(done)});
  }

  absl::Status ReadRows(const RowsQuery& query, absl::Time deadline,
                        const RowBlockSink& sink) override {
    v1::ReadRowsRequest request;
    request.set_table_id(ToInt(query.table));
    request.set_row_begin(query.row_begin);
    request.set_row_end(query.row_end);
    request.mutable_row_ids()->Add(query.row_ids.begin(), query.row_ids.end());
    request.set_with_state(query.with_state);
    request.set_replica_group(query.replica_group);
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(deadline));
    return TakeAll(context, *data_.ReadRows(&context, request),
                   [&sink](const v1::ReadRowsReply& reply) {
                     return sink(AlignedCopy(reply.row_block()).bytes());
                   });
  }

  absl::StatusOr<std::vector<TableSync>> Sync(const SyncQuery& query,
                                              absl::Time deadline) override {
    v1::SyncRequest request;
    request.set_plan_version(ToInt(query.plan_version));
    for (const TableId table : query.tables) request.add_table_ids(ToInt(table));
    EMBLA_ASSIGN_OR_RETURN(const v1::SyncReply reply,
                           Ask(data_, &v1::DataService::Stub::Sync, request, deadline));
    std::vector<TableSync> tables;
    for (const v1::TableSync& table : reply.tables()) {
      tables.push_back({.table = TableId{table.table_id()},
                        .values = table.values(),
                        .divergence_max = table.divergence_max(),
                        .squares = table.squares()});
      for (const v1::AveragedRows& rows : table.averaged()) {
        tables.back().averaged.push_back({.column_begin = rows.column_begin(),
                                          .column_end = rows.column_end(),
                                          .row_begin = rows.row_begin(),
                                          .row_end = rows.row_end()});
      }
    }
    return tables;
  }

  absl::StatusOr<IdExplanation> ExplainId(TableId table, std::int64_t id,
                                          absl::Time deadline) override {
    v1::ExplainIdRequest request;
    request.set_table_id(ToInt(table));
    request.set_id(id);
    EMBLA_ASSIGN_OR_RETURN(const v1::ExplainIdReply reply,
                           Ask(inspect_, &v1::InspectService::Stub::ExplainId, request, deadline));
    IdExplanation explanation;
    explanation.device = reply.device();
    explanation.bucket = reply.bucket();
    if (reply.row() >= 0) explanation.row = reply.row();
    if (reply.shared_row() >= 0) explanation.shared_row = reply.shared_row();
    explanation.last_step = reply.last_step();
    explanation.touches = reply.touches();
    explanation.expires_at_step = reply.expires_at_step();
    explanation.seen = reply.seen();
    explanation.group_residents = reply.group_residents();
    explanation.evicted_reason = reply.evicted_reason();
    explanation.evicted_at_step = reply.evicted_at_step();
    explanation.evicted_last_step = reply.evicted_last_step();
    explanation.evictions_known_since = reply.evictions_known_since();
    return explanation;
  }

  absl::StatusOr<TableSurvey> SurveyTable(TableId table, std::uint64_t step,
                                          absl::Time deadline) override {
    v1::SurveyTableRequest request;
    request.set_table_id(ToInt(table));
    request.set_step(step);
    EMBLA_ASSIGN_OR_RETURN(
        const v1::TableSurvey reply,
        Ask(inspect_, &v1::InspectService::Stub::SurveyTable, request, deadline));
    return TableSurvey{.slots = reply.slots(),
                       .residents = reply.residents(),
                       .full_groups = reply.full_groups(),
                       .waiting = reply.waiting(),
                       .age_sum = reply.age_sum(),
                       .oldest_age = reply.oldest_age(),
                       .latest_step = reply.latest_step()};
  }

  absl::StatusOr<SweepReply> SweepTable(const SweepQuery& query, absl::Time deadline) override {
    v1::SweepTableRequest request;
    request.set_table_id(ToInt(query.table));
    request.set_rule(query.expired ? v1::SweepTableRequest::RULE_EXPIRED
                                   : v1::SweepTableRequest::RULE_IDLE);
    request.set_step(query.step);
    request.set_before_step(query.before_step);
    for (const auto& [begin, end] : query.rows) {
      v1::RowRange& range = *request.add_rows();
      range.set_begin(begin);
      range.set_end(end);
    }
    EMBLA_ASSIGN_OR_RETURN(const v1::SweepTableReply reply,
                           Ask(inspect_, &v1::InspectService::Stub::SweepTable, request, deadline));
    SweepReply swept{.evicted = reply.evicted(), .swept = {}};
    for (const v1::RowRange& range : reply.swept()) {
      swept.swept.emplace_back(range.begin(), range.end());
    }
    return swept;
  }

  absl::Status ReadEvictions(TableId table, bool follow, EvictionsPosition& position,
                             absl::Time deadline, const EvictionsSink& sink) override {
    v1::ReadEvictionsRequest request;
    request.set_table_id(ToInt(table));
    request.set_follow(follow);
    request.set_log(position.log);
    request.set_from(position.next);
    grpc::ClientContext context;
    context.set_deadline(DeadlineOf(deadline));
    return TakeAll(context, *inspect_.ReadEvictions(&context, request),
                   [&](const v1::EvictedRows& reply) {
                     const absl::Status status = TakeEvictions(reply, sink);
                     if (status.ok()) position = {reply.log(), reply.next()};
                     return status;
                   });
  }

  void Close() override {
    for (const auto& connection : connections_) connection->Close();
    gate_.FailWaiting(absl::UnavailableError("the connection was given up"));
  }

 private:
  static absl::Status TakeEvictions(const v1::EvictedRows& reply, const EvictionsSink& sink) {
    const Buffer block = AlignedCopy(reply.row_block());
    Evictions evictions{.missed = reply.missed(), .rows = {}, .row_block = block.bytes()};
    for (const v1::Eviction& eviction : reply.evictions()) {
      EvictedRow& row = evictions.rows.emplace_back();
      row.id = eviction.id();
      row.reason = eviction.reason();
      row.step = eviction.step();
      row.last_step = eviction.last_step();
    }
    return sink(evictions);
  }

  SocketPtr Start(DataRequest request) {
    // Expired while it waited for its turn: the node need not see it.
    if (request.deadline <= timer_.Now()) {
      request.done({.status = absl::DeadlineExceededError("the time was over before sending")});
      return nullptr;
    }
    const std::size_t turn = next_connection_.fetch_add(1, std::memory_order_relaxed);
    return connections_[turn % connections_.size()]->Send(std::move(request));
  }

  Timer& timer_;  // Not owned; outlives this object.
  InFlightGate gate_;
  const std::shared_ptr<grpc::Channel> reads_channel_;
  v1::DataService::Stub data_;
  v1::InspectService::Stub inspect_;
  std::atomic<std::size_t> next_connection_ = 0;              // Any order will do.
  std::vector<std::unique_ptr<DataConnection>> connections_;  // Last: their calls use the gate.
};

}  // namespace

std::unique_ptr<NodeChannel> MakeGrpcNodeChannel(const std::string& address,
                                                 const GrpcNodeOptions& options, Timer& timer) {
  return std::make_unique<GrpcNodeChannel>(address, options, timer);
}

}  // namespace embla::client
