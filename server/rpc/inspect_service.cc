#include "server/rpc/inspect_service.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/wire/status_codec.h"
#include "server/rpc/evictions_call.h"
#include "server/shard/table_inspector.h"

namespace embla {
namespace {

void Fill(const IdExplanation& explanation, v1::ExplainIdReply& reply) {
  reply.set_device(explanation.device);
  reply.set_bucket(explanation.bucket);
  reply.set_row(explanation.row.value_or(-1));
  reply.set_shared_row(explanation.shared_row.value_or(-1));
  reply.set_last_step(explanation.last_step);
  reply.set_touches(explanation.touches);
  reply.set_expires_at_step(explanation.expires_at_step);
  reply.set_seen(explanation.seen);
  reply.set_group_residents(explanation.group_residents);
  reply.set_evictions_known_since(explanation.evictions_known_since);
  if (!explanation.eviction.has_value()) return;
  reply.set_evicted(true);
  reply.set_evicted_at_step(explanation.eviction->step);
  reply.set_evicted_last_step(explanation.eviction->last_step);
  reply.set_evicted_reason(explanation.eviction->reason);
}

void Fill(const zch::Survey& survey, v1::TableSurvey& reply) {
  reply.set_buckets(survey.buckets);
  reply.set_slots(survey.slots);
  reply.set_residents(survey.residents);
  reply.set_residents_of_fullest_bucket(survey.residents_of_fullest_bucket);
  reply.set_full_groups(survey.full_groups);
  reply.set_waiting(survey.waiting);
  reply.set_age_sum(survey.age_sum);
  reply.set_oldest_age(survey.oldest_age);
  reply.set_latest_step(survey.latest_step);
}

void Fill(const SweepResult& result, v1::SweepTableReply& reply) {
  reply.set_evicted(result.evicted);
  for (const RowInterval& rows : result.swept) {
    v1::RowRange& range = *reply.add_swept();
    range.set_begin(rows.begin);
    range.set_end(rows.end);
  }
}

absl::StatusOr<ShardNode::SweepQuery> FromMessage(const v1::SweepTableRequest& request) {
  ShardNode::SweepQuery query;
  query.table = TableId{request.table_id()};
  if (request.rule() != v1::SweepTableRequest::RULE_EXPIRED &&
      request.rule() != v1::SweepTableRequest::RULE_IDLE) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sweep has rule ", static_cast<int>(request.rule()), ", known are 1 and 2"));
  }
  query.sweep = {static_cast<ZchSweep::Rule>(request.rule()), request.step(),
                 request.before_step()};
  for (const v1::RowRange& rows : request.rows()) {
    if (rows.begin() < 0 || rows.end() <= rows.begin()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows [", rows.begin(), ", ", rows.end(), ") are not a range"));
    }
    query.rows.push_back({rows.begin(), rows.end()});
  }
  return query;
}

void Fill(const UnitContent& unit, v1::InspectedUnit& message) {
  message.set_row_granule(unit.row_granule);
  message.set_column_begin(unit.column_begin);
  message.set_column_end(unit.column_end);
  message.set_replica_group(unit.replica_group);
  message.set_device(unit.device);
  message.set_state(static_cast<v1::InspectedUnit::State>(unit.state));
  message.set_rows(unit.rows);
  message.set_crc32c(unit.crc32c);
}

void Fill(const std::vector<UnitContent>& units, v1::InspectTableReply& reply) {
  for (const UnitContent& unit : units) Fill(unit, *reply.add_units());
}

// Ends a call with a result, once: what it fills the reply with, or its error.
template <typename Reply>
class Answer {
 public:
  Answer(grpc::ServerUnaryReactor* reactor, Reply* reply) : reactor_(reactor), reply_(reply) {}

  template <typename Result>
  void operator()(const absl::StatusOr<Result>& result) const {
    if (result.ok()) Fill(*result, *reply_);
    reactor_->Finish(wire::ToGrpc(result.status()));
  }
  void operator()(const absl::Status& error) const { reactor_->Finish(wire::ToGrpc(error)); }

 private:
  // Neither is owned; gRPC keeps both until the call ends.
  grpc::ServerUnaryReactor* const reactor_;
  Reply* const reply_;
};

}  // namespace

grpc::ServerUnaryReactor* InspectService::ExplainId(grpc::CallbackServerContext* call,
                                                    const v1::ExplainIdRequest* request,
                                                    v1::ExplainIdReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  node_.ExplainId(TableId{request->table_id()}, RowId{request->id()}, Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::SurveyTable(grpc::CallbackServerContext* call,
                                                      const v1::SurveyTableRequest* request,
                                                      v1::TableSurvey* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  node_.SurveyTable(TableId{request->table_id()}, request->step(), Answer(reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::SweepTable(grpc::CallbackServerContext* call,
                                                     const v1::SweepTableRequest* request,
                                                     v1::SweepTableReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const Answer answer(reactor, reply);
  const absl::StatusOr<ShardNode::SweepQuery> query = FromMessage(*request);
  if (query.ok()) {
    node_.SweepTable(*query, absl::FromChrono(call->deadline()), answer);
  } else {
    answer(query.status());
  }
  return reactor;
}

grpc::ServerWriteReactor<v1::EvictedRows>* InspectService::ReadEvictions(
    grpc::CallbackServerContext*, const v1::ReadEvictionsRequest* request) {
  return EvictionsCall::Start(
      node_.Evictions(TableId{request->table_id()}),
      {.follow = request->follow(), .log = request->log(), .from = request->from()});
}

grpc::ServerUnaryReactor* InspectService::InspectTable(grpc::CallbackServerContext* call,
                                                       const v1::InspectTableRequest* request,
                                                       v1::InspectTableReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const Answer answer(reactor, reply);
  const absl::Status accepted = threads_.Post(
      [this, request, answer] { answer(node_.InspectTable(TableId{request->table_id()})); });
  if (!accepted.ok()) answer(accepted);
  return reactor;
}

}  // namespace embla
