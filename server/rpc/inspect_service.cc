#include "server/rpc/inspect_service.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/bounded_method.h"
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

// Waits for an answer that is given by callback.
template <typename Result>
class Awaited {
 public:
  void Set(absl::StatusOr<Result> result) {
    MutexLock lock(mu_);
    result_ = std::move(result);
    changed_.NotifyAll();
  }
  absl::StatusOr<Result> Wait() {
    MutexLock lock(mu_);
    while (!result_.has_value()) changed_.Wait(mu_);
    return *std::move(result_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::StatusOr<Result>> result_ ABSL_GUARDED_BY(mu_);
};

// Where the caller `may` ask: runs `ask` (const GivenUp&) -> absl::StatusOr<Result> on one of
// `threads`, unless the caller has left by then, and ends the call with what it returns.
template <typename Reply, typename Ask>
grpc::ServerUnaryReactor* AskOn(TaskThreads& threads, grpc::CallbackServerContext& call,
                                const absl::Status& may, Reply* reply, Ask ask) {
  grpc::ServerUnaryReactor* const reactor = call.DefaultReactor();
  const Answer answer(reactor, reply);
  const GivenUp given_up = [&call] { return call.IsCancelled(); };
  absl::Status accepted = may;
  if (may.ok()) {
    accepted = threads.Post([answer, given_up, ask = std::move(ask)] {
      if (given_up()) return answer(absl::CancelledError("nobody waits for the answer"));
      answer(ask(given_up));
    });
  }
  if (!accepted.ok()) answer(accepted);
  return reactor;
}

}  // namespace

InspectService::InspectService(ShardNode& node) : node_(node) {
  // In the order of proto/embla/v1/inspect.proto.
  MarkMethodCallback(0, BoundedUnary(this, &InspectService::ExplainId));
  MarkMethodCallback(1, BoundedUnary(this, &InspectService::SurveyTable));
  MarkMethodCallback(2, BoundedUnary(this, &InspectService::SweepTable));
  MarkMethodCallback(3, BoundedServerStream(this, &InspectService::ReadEvictions));
  MarkMethodCallback(4, BoundedUnary(this, &InspectService::InspectTable));
}

absl::Status InspectService::MayUse(const grpc::CallbackServerContext& call,
                                    std::uint32_t table) const {
  return CheckTable(CallerOf(call), *node_.plan(), TableId{table});
}

grpc::ServerUnaryReactor* InspectService::ExplainId(grpc::CallbackServerContext* call,
                                                    const v1::ExplainIdRequest* request,
                                                    v1::ExplainIdReply* reply) {
  return AskOn(questions_, *call, MayUse(*call, request->table_id()), reply,
               [this, request](const GivenUp&) {
                 Awaited<IdExplanation> explanation;
                 node_.ExplainId(TableId{request->table_id()}, RowId{request->id()},
                                 [&](absl::StatusOr<IdExplanation> result) {
                                   explanation.Set(std::move(result));
                                 });
                 return explanation.Wait();
               });
}

grpc::ServerUnaryReactor* InspectService::SurveyTable(grpc::CallbackServerContext* call,
                                                      const v1::SurveyTableRequest* request,
                                                      v1::TableSurvey* reply) {
  return AskOn(questions_, *call, MayUse(*call, request->table_id()), reply,
               [this, request](const GivenUp&) {
                 Awaited<zch::Survey> survey;
                 node_.SurveyTable(
                     TableId{request->table_id()}, request->step(),
                     [&](absl::StatusOr<zch::Survey> result) { survey.Set(std::move(result)); });
                 return survey.Wait();
               });
}

grpc::ServerUnaryReactor* InspectService::SweepTable(grpc::CallbackServerContext* call,
                                                     const v1::SweepTableRequest* request,
                                                     v1::SweepTableReply* reply) {
  const absl::Time deadline = absl::FromChrono(call->deadline());
  return AskOn(questions_, *call, MayUse(*call, request->table_id()), reply,
               [this, request, deadline](const GivenUp&) -> absl::StatusOr<SweepResult> {
                 EMBLA_ASSIGN_OR_RETURN(const ShardNode::SweepQuery query, FromMessage(*request));
                 Awaited<SweepResult> sweep;
                 node_.SweepTable(query, deadline, [&](absl::StatusOr<SweepResult> result) {
                   sweep.Set(std::move(result));
                 });
                 return sweep.Wait();
               });
}

std::shared_ptr<void> InspectService::TakeReaderSlot() {
  if (++eviction_readers_ <= kEvictionReadersMax) {
    return {this, [this](void*) { --eviction_readers_; }};
  }
  --eviction_readers_;
  return nullptr;
}

grpc::ServerWriteReactor<v1::EvictedRows>* InspectService::ReadEvictions(
    grpc::CallbackServerContext* call, const v1::ReadEvictionsRequest* request) {
  std::shared_ptr<void> slot = TakeReaderSlot();
  absl::StatusOr<std::shared_ptr<EvictionLog>> log =
      slot == nullptr ? absl::ResourceExhaustedError(absl::StrCat(
                            kEvictionReadersMax, " others read evicted rows here: try later"))
                      : node_.Evictions(TableId{request->table_id()});
  if (const absl::Status may = MayUse(*call, request->table_id()); !may.ok()) log = may;
  return EvictionsCall::Start(
      std::move(log), {.follow = request->follow(), .log = request->log(), .from = request->from()},
      std::move(slot));
}

grpc::ServerUnaryReactor* InspectService::InspectTable(grpc::CallbackServerContext* call,
                                                       const v1::InspectTableRequest* request,
                                                       v1::InspectTableReply* reply) {
  return AskOn(readers_, *call, MayUse(*call, request->table_id()), reply,
               [this, request](const GivenUp& given_up) {
                 return node_.InspectTable(TableId{request->table_id()}, given_up);
               });
}

}  // namespace embla
