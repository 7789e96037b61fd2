#include "client/testing/fake_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/rows/row_block.h"

namespace embla::client {
namespace {

constexpr std::int64_t kUnitRows = 10;

}  // namespace

class FakeCluster::Coordinator final : public CoordinatorChannel {
 public:
  explicit Coordinator(FakeCluster& cluster) : cluster_(cluster) {}

  absl::StatusOr<PlanPtr> GetPlan(const PlanPtr& have, absl::Time deadline) override {
    MutexLock lock(cluster_.mu_);
    ++cluster_.coordinator_calls_;
    if (const absl::Status status = cluster_.AskCoordinator(deadline); !status.ok()) return status;
    if (cluster_.coordinator_plan_->version() <= have->version()) return PlanPtr();
    return cluster_.coordinator_plan_;
  }
  absl::StatusOr<SessionGrant> OpenSession(const SessionRequest& request,
                                           absl::Time deadline) override {
    MutexLock lock(cluster_.mu_);
    cluster_.session_requests_.push_back(request);
    if (const absl::Status status = cluster_.AskCoordinator(deadline); !status.ok()) return status;
    if (request.replaces != cluster_.trainer_session_) {
      return SessionGrant{.latest = cluster_.trainer_session_};
    }
    return SessionGrant{.session = SessionId{77}, .turn = 5, .proof = kFakeProof};
  }
  absl::Status CloseSession(SessionId, const SessionProof&, absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status JoinSteps(SessionId session, const SessionProof& proof,
                         std::span<const TableId> tables, absl::Time deadline) override {
    MutexLock lock(cluster_.mu_);
    EMBLA_CHECK(session == SessionId{77} && proof == kFakeProof);
    cluster_.step_wishes_.emplace_back(tables.begin(), tables.end());
    return cluster_.AskCoordinator(deadline);
  }
  // A watch that never says anything: tests of the client see what refreshing alone does.
  void StartWatch(PlanPtr, const SessionGrant&, std::function<void(PlanPtr)>) override {}
  void StopWatch() override {}

 private:
  FakeCluster& cluster_;
};

class FakeCluster::Channel final : public NodeChannel {
 public:
  Channel(FakeCluster& cluster, std::string address, Timer& timer)
      : cluster_(cluster), address_(std::move(address)), timer_(timer) {
    node_ = NodeId{static_cast<std::uint32_t>(std::stoul(address_.substr(address_.find(':') + 1)))};
  }

  SocketPtr Lookup(NodeLookup request, absl::Time deadline, Done done) override {
    Send(std::make_shared<NodeLookup>(std::move(request)), deadline, std::move(done));
    return nullptr;
  }
  SocketPtr Update(NodeUpdate request, absl::Time deadline, Done done) override {
    request.Own();
    Send(std::make_shared<NodeUpdate>(std::move(request)), deadline, std::move(done));
    return nullptr;
  }

  absl::Status ReadRows(const RowsQuery& query, absl::Time, const RowBlockSink& sink) override {
    {
      MutexLock lock(cluster_.mu_);
      const absl::Status status = cluster_.Scripted(address_);
      if (!status.ok()) return status;
    }
    const PlainTable& table = cluster_.nodes_.table(query.table);
    std::vector<std::int64_t> rows = query.row_ids;
    if (rows.empty()) {
      for (std::int64_t r = query.row_begin; r < query.row_end; ++r) rows.push_back(r);
    }
    const TableRoute& route = *cluster_.nodes_.routes()->Find(query.table);
    for (const RouteBlock& block : route.primary()) {
      for (const std::int64_t row : rows) {
        if (block.nodes()[block.OwnerOf(row)] != node_) continue;
        const absl::Status status = SendRow(table, block, row, query.with_state, sink);
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // Every table has weights that were 1 from their means, as many as the node's number.
  absl::StatusOr<std::vector<TableSync>> Sync(const SyncQuery& query, absl::Time now) override {
    MutexLock lock(cluster_.mu_);
    Request& record = cluster_.requests_.emplace_back();
    record.address = address_;
    record.plan_version = query.plan_version;
    record.time = now;
    record.answer = cluster_.Scripted(address_);
    if (!record.answer.ok()) return record.answer;
    std::vector<TableSync> tables;
    for (const TableId table : query.tables) {
      const auto values = static_cast<double>(ToInt(node_));
      tables.push_back({table, ToInt(node_), /*divergence_max=*/values, /*squares=*/values});
      const TablePlan* const plan = cluster_.coordinator_plan_->FindTable(table);
      for (const Slice& slice : plan->primary()) {
        if (slice.device.node != node_) continue;
        tables.back().averaged.push_back(
            {slice.column_begin, slice.column_end, slice.row_begin, slice.row_end});
      }
      if (cluster_.moving_row_ < 0) continue;
      // A unit is being handed over: it is left out once.
      for (TableSync::Rows& rows : tables.back().averaged) {
        if (cluster_.moving_row_ < rows.row_begin || cluster_.moving_row_ >= rows.row_end) continue;
        rows.row_end = cluster_.moving_row_;
        cluster_.moving_row_ = -1;
        break;
      }
    }
    return tables;
  }

  absl::StatusOr<IdExplanation> ExplainId(TableId, std::int64_t id, absl::Time) override {
    IdExplanation explanation;
    explanation.row = id;
    return explanation;
  }
  absl::StatusOr<TableSurvey> SurveyTable(TableId, std::uint64_t, absl::Time) override {
    return absl::UnimplementedError("not faked");
  }
  absl::StatusOr<SweepReply> SweepTable(const SweepQuery&, absl::Time) override {
    return absl::UnimplementedError("not faked");
  }
  absl::Status ReadEvictions(TableId, bool, EvictionsPosition&, absl::Time,
                             const EvictionsSink&) override {
    return absl::UnimplementedError("not faked");
  }

  void Close() override {
    std::map<int, Held> held;
    {
      MutexLock lock(cluster_.mu_);
      closed_ = true;
      const auto found = cluster_.held_.find(address_);
      if (found != cluster_.held_.end()) held.swap(found->second);
    }
    for (const auto& [number, each] : held) each.expire();
  }

 private:
  static absl::Status SendRow(const PlainTable& table, const RouteBlock& block, std::int64_t row,
                              bool with_state, const RowBlockSink& sink) {
    const StateShape state = StateShapeOf(table.spec().optimizer);
    const std::uint32_t columns = block.column_end() - block.column_begin();
    const std::uint32_t state_floats =
        with_state ? state.row_floats + state.element_arrays * columns : 0;
    RowBlockBuilder builder({.table = table.spec().id,
                             .column_begin = block.column_begin(),
                             .column_end = block.column_end(),
                             .state_floats = state_floats},
                            1);
    builder.rows()[0] = RowId{row};
    auto* weights = reinterpret_cast<float*>(builder.weights().data());
    for (std::uint32_t c = 0; c < columns; ++c) {
      weights[c] = table.weight(row, block.column_begin() + c);
    }
    for (std::uint32_t i = 0; i < state_floats; ++i) {
      builder.state()[i] = table.statistic(row, block.column_begin());
    }
    return sink(builder.Finish().bytes());
  }

  template <typename NodeRequest>
  void Send(std::shared_ptr<NodeRequest> request, absl::Time deadline, Done done) {
    std::function<void()> answer = [this, request, done] {
      done(cluster_.Answer(address_, node_, *request, timer_.Now()));
    };
    if (deadline <= timer_.Now()) {
      return done({.status = absl::DeadlineExceededError("the time was over before sending")});
    }
    bool closed = false;
    {
      MutexLock lock(cluster_.mu_);
      closed = closed_;
      const auto held = cluster_.held_.find(address_);
      if (held != cluster_.held_.end() && !closed) {
        const int number = ++cluster_.last_held_;
        held->second[number] = {std::move(answer), [done] {
                                  done({.status = absl::DeadlineExceededError("no reply in time")});
                                }};
        timer_.At(deadline, [this, number] { Expire(number); });
        return;
      }
    }
    if (closed) return done({.status = absl::UnavailableError("the connection was given up")});
    answer();
  }

  void Expire(int number) {
    std::function<void()> expire;
    {
      MutexLock lock(cluster_.mu_);
      auto& held = cluster_.held_[address_];
      const auto found = held.find(number);
      if (found == held.end()) return;
      expire = std::move(found->second.expire);
      held.erase(found);
    }
    expire();
  }

  FakeCluster& cluster_;
  const std::string address_;
  Timer& timer_;
  NodeId node_{};
  bool closed_ = false;  // Guarded by cluster_.mu_.
};

absl::Status FakeCluster::Scripted(const std::string& address) {
  const auto all = all_.find(address);
  if (all != all_.end() && !all->second.ok()) return all->second;
  std::deque<absl::Status>& next = next_[address];
  if (next.empty()) return absl::OkStatus();
  absl::Status status = next.front();
  next.pop_front();
  return status;
}

template <typename NodeRequest>
NodeReply FakeCluster::Answer(const std::string& address, NodeId node, const NodeRequest& request,
                              absl::Time now) {
  MutexLock lock(mu_);
  Request& record = requests_.emplace_back();
  record.address = address;
  record.plan_version = request.batch.plan_version;
  if (!request.batch.parts.empty()) {
    record.replica_group = request.batch.parts.front().replica_group;
  }
  record.session = request.batch.session;
  record.proof = request.batch.proof;
  record.trace = request.batch.trace;
  record.time = now;
  record.answer = Scripted(address);
  if constexpr (std::is_same_v<NodeRequest, NodeLookup>) {
    record.lookup = true;
    if (record.answer.ok()) {
      NodeReply refusal{.plan_version = nodes_.routes()->plan().version(),
                        .refused = Moved(node, request.batch.parts)};
      EMBLA_CHECK(refusal.refused.empty() || request.batch.takes_refused);
      if (!refusal.refused.empty()) return refusal;
      record.answer = nodes_.Lookup(node, request);
    }
  } else {
    record.seq = request.batch.seq;
    record.first_incomplete = request.batch.first_incomplete;
    record.step = request.batch.step;
    record.claim = request.batch.claim;
    for (const UpdatePart& part : request.batch.parts) record.ids += part.ids.size();
    if (!request.batch.parts.empty()) {
      record.learning_rate = request.batch.parts.front().learning_rate;
    }
    record.routed_since = request.batch.routed_since;
    NodeReply reply{.plan_version = nodes_.routes()->plan().version()};
    if (record.answer.ok() && request.batch.claim.has_value()) {
      reply = AnswerContribution(node, request);
      requests_.back().answer = reply.status;
      return reply;
    }
    if (record.answer.ok()) reply.refused = Moved(node, request.batch.parts);
    if (record.answer.ok() && reply.refused.empty()) {
      record.answer = nodes_.CheckUpdate(node, request);
      if (record.answer.ok()) reply.refused = Refuse(request);
    }
    if (record.answer.ok()) record.answer = nodes_.Update(node, request, reply.refused);
    reply.status = record.answer;
    for (const RefusedUnit& unit : reply.refused) {
      if (unit.reason != RefusedUnit::Reason::kMoved || plans_.empty()) continue;
      FollowNextPlan();
      break;
    }
    return reply;
  }
  return {.status = record.answer};
}

void FakeCluster::FollowNextPlan() {
  coordinator_plan_ = plans_.front();
  nodes_.SetPlan(coordinator_plan_);
  plans_.pop_front();
}

NodeReply FakeCluster::AnswerContribution(NodeId node, const NodeUpdate& request) {
  NodeReply reply;
  const StepClaim& claim = *request.batch.claim;
  const UnitSet moved = claim.units.Minus(nodes_.UnitsOn(node, claim.table));
  const UnitSet here = claim.units.Minus(moved);
  reply.refused_claims = RefuseClaim(here);
  const std::vector<RefusedClaim> elsewhere = MovedClaims(claim.table, moved);
  reply.plan_version = nodes_.routes()->plan().version();
  reply.refused_claims.insert(reply.refused_claims.end(), elsewhere.begin(), elsewhere.end());
  if (!moved.empty() && reply.refused_claims.size() == elsewhere.size()) {
    // A node takes all of a claim or nothing.
    for (const UnitSet::Run& run : here.runs()) {
      reply.refused_claims.push_back({.units = run, .reason = RefusedClaim::Reason::kAgain});
    }
  }
  UnitSet refused;
  bool is_moved = false;
  for (const RefusedClaim& each : reply.refused_claims) {
    refused.Include(UnitSet(each.units));
    is_moved |= each.reason == RefusedClaim::Reason::kMoved && moved.empty();
  }
  refusals_ += static_cast<int>(reply.refused_claims.size());
  reply.status = nodes_.MakeStep(request, claim.units.Minus(refused));
  if (is_moved && !plans_.empty()) FollowNextPlan();
  return reply;
}

// Stated, or at random: units that are frozen, that move, that go again and that have stepped.
std::vector<RefusedClaim> FakeCluster::RefuseClaim(const UnitSet& here) {
  std::vector<RefusedClaim> refused;
  if (!refused_claims_.empty()) {
    refused = std::move(refused_claims_.front());
    refused_claims_.pop_front();
    return refused;
  }
  if (!refuses_ || random_() % 3 == 0) return refused;
  for (const UnitSet::Run& run : here.runs()) {
    for (std::uint32_t granule = run.begin; granule < run.end; ++granule) {
      RefusedClaim claim{.units = {run.column_granule, granule, granule + 1}};
      const std::uint32_t fate = random_() % 6;
      if (fate < 2) continue;
      claim.reason = RefusedClaim::Reason::kAgain;
      if (fate == 2) claim.reason = RefusedClaim::Reason::kFrozen;
      if (fate == 3 && !plans_.empty()) claim.reason = RefusedClaim::Reason::kMoved;
      if (fate == 2) claim.retry_after_ms = 5;
      if (claim.reason == RefusedClaim::Reason::kMoved) {
        claim.plan_version = plans_.front()->version();
      }
      refused.push_back(claim);
    }
  }
  return refused;
}

std::vector<RefusedClaim> FakeCluster::MovedClaims(TableId table, const UnitSet& moved) {
  std::vector<RefusedClaim> refused;
  for (const NodeSpec& node : nodes_.routes()->plan().nodes()) {
    for (const UnitSet::Run& run : moved.And(nodes_.UnitsOn(node.id, table)).runs()) {
      RefusedClaim& claim = refused.emplace_back();
      claim.units = run;
      claim.reason = RefusedClaim::Reason::kMoved;
      claim.plan_version = nodes_.routes()->plan().version();
      if (!gives_hints_) continue;
      claim.owner = node.id;
      claim.epoch = ToInt(claim.plan_version);
    }
  }
  return refused;
}

template <typename Part>
std::vector<RefusedUnit> FakeCluster::Moved(NodeId node, const std::vector<Part>& parts) {
  std::vector<RefusedUnit> moved;
  const Routes& routes = *nodes_.routes();
  for (std::uint32_t p = 0; p < parts.size(); ++p) {
    const TableRoute* const table = routes.Find(parts[p].table);
    if (table == nullptr) continue;
    std::set<std::int64_t> units;
    for (const RowId id : parts[p].ids) units.insert(ToInt(id) / kUnitRows);
    for (const RouteBlock& block : table->primary()) {
      if (block.column_end() <= parts[p].column_begin ||
          parts[p].column_end <= block.column_begin()) {
        continue;
      }
      for (const std::int64_t unit : units) {
        const std::int64_t row = unit * kUnitRows;
        RefusedUnit refused{.part = p,
                            .row_begin = row,
                            .row_end = row + kUnitRows,
                            .reason = RefusedUnit::Reason::kMoved,
                            .plan_version = PlanVersion{ToInt(routes.plan().version()) + 1},
                            .column_begin = block.column_begin(),
                            .column_end = block.column_end(),
                            .owner = block.nodes()[block.OwnerOf(row)],
                            .epoch = ToInt(routes.plan().version())};
        const auto said = std::ranges::find_if(sayings_, [&](const Saying& saying) {
          return saying.node == node && saying.row_begin <= row && row < saying.row_end;
        });
        if (said != sayings_.end()) {
          refused.row_begin = said->row_begin;
          refused.row_end = said->row_end;
          refused.owner = said->owner;
          refused.epoch = said->epoch;
        } else if (!gives_hints_ || refused.owner == node) {
          continue;
        }
        moved.push_back(refused);
      }
    }
  }
  if (!moved.empty()) {
    std::erase_if(sayings_, [node](Saying& saying) {
      return saying.node == node && saying.answers > 0 && --saying.answers == 0;
    });
  }
  refusals_ += static_cast<int>(moved.size());
  return moved;
}

void FakeCluster::GiveHints() {
  MutexLock lock(mu_);
  gives_hints_ = true;
}

void FakeCluster::Say(const Saying& saying) {
  MutexLock lock(mu_);
  sayings_.insert(sayings_.begin(), saying);
}

void FakeCluster::SayNothing() {
  MutexLock lock(mu_);
  sayings_.clear();
}

void FakeCluster::RefuseClaims(std::deque<std::vector<RefusedClaim>> refused) {
  MutexLock lock(mu_);
  refused_claims_ = std::move(refused);
}

bool FakeCluster::AllAt(TableId table, std::uint64_t step) const {
  MutexLock lock(mu_);
  for (const UnitSet::Run& run : nodes_.AllUnits(table).runs()) {
    for (std::uint32_t granule = run.begin; granule < run.end; ++granule) {
      if (nodes_.NextStep(table, {run.column_granule, granule, granule + 1}) != step) return false;
    }
  }
  return true;
}

std::vector<std::vector<TableId>> FakeCluster::step_wishes() const {
  MutexLock lock(mu_);
  return step_wishes_;
}

std::vector<RefusedUnit> FakeCluster::Refuse(const NodeUpdate& request) {
  std::vector<RefusedUnit> refused;
  if (!refuses_) return refused;
  // A unit has one fate, in however many parts it is.
  std::map<std::tuple<TableId, std::uint32_t, std::int64_t>, std::uint32_t> fates;
  for (std::uint32_t p = 0; p < request.batch.parts.size(); ++p) {
    const UpdatePart& part = request.batch.parts[p];
    std::set<std::int64_t> units;
    for (const RowId id : part.ids) units.insert(ToInt(id) / kUnitRows);
    for (const std::int64_t unit : units) {
      const std::uint32_t drawn = refuses_all_.has_value() ? 0 : random_() % 8;
      const std::uint32_t fate =
          fates.try_emplace({part.table, part.column_begin, unit}, drawn).first->second;
      if (fate >= 3) continue;
      RefusedUnit& left_out = refused.emplace_back();
      left_out.part = p;
      left_out.row_begin = unit * kUnitRows;
      left_out.row_end = (unit + 1) * kUnitRows;
      left_out.retry_after_ms = 5;
      left_out.reason = refuses_all_.value_or(left_out.reason);
      if (fate > 0 || plans_.empty()) continue;
      left_out.reason = RefusedUnit::Reason::kMoved;
      left_out.plan_version = plans_.front()->version();
    }
  }
  refusals_ += static_cast<int>(refused.size());
  return refused;
}

void FakeCluster::RefuseUnits(std::uint32_t seed, std::deque<PlanPtr> plans) {
  MutexLock lock(mu_);
  refuses_ = true;
  random_.seed(seed);
  plans_ = std::move(plans);
}

void FakeCluster::RefuseAll(RefusedUnit::Reason reason) {
  MutexLock lock(mu_);
  refuses_ = true;
  refuses_all_ = reason;
}

void FakeCluster::LeaveOutOnce(std::int64_t row) {
  MutexLock lock(mu_);
  moving_row_ = row;
}

int FakeCluster::refusals() const {
  MutexLock lock(mu_);
  return refusals_;
}

void FakeCluster::SetCoordinatorPlan(PlanPtr plan) {
  MutexLock lock(mu_);
  coordinator_plan_ = std::move(plan);
}

void FakeCluster::SetNodePlan(PlanPtr plan) {
  MutexLock lock(mu_);
  nodes_.SetPlan(std::move(plan));
}

void FakeCluster::SetCoordinatorStatus(absl::Status status) {
  MutexLock lock(mu_);
  coordinator_status_ = std::move(status);
}

void FakeCluster::LoseCoordinatorCalls(int count) {
  MutexLock lock(mu_);
  coordinator_calls_to_lose_ = count;
}

absl::Time FakeCluster::last_lost_deadline() const {
  MutexLock lock(mu_);
  return last_lost_deadline_;
}

void FakeCluster::SetTrainerSession(SessionId session) {
  MutexLock lock(mu_);
  trainer_session_ = session;
}

std::vector<SessionRequest> FakeCluster::session_requests() const {
  MutexLock lock(mu_);
  return session_requests_;
}

absl::Status FakeCluster::AskCoordinator(absl::Time deadline) {
  if (coordinator_calls_to_lose_ == 0) return coordinator_status_;
  --coordinator_calls_to_lose_;
  last_lost_deadline_ = deadline;
  return absl::DeadlineExceededError("no answer");
}

void FakeCluster::FailNext(const std::string& address, std::vector<absl::Status> statuses) {
  MutexLock lock(mu_);
  next_[address].assign(statuses.begin(), statuses.end());
}

void FakeCluster::FailAll(const std::string& address, absl::Status status) {
  MutexLock lock(mu_);
  all_[address] = std::move(status);
}

void FakeCluster::Hold(const std::string& address) {
  MutexLock lock(mu_);
  held_[address];
}

void FakeCluster::Release(const std::string& address) {
  std::map<int, Held> released;
  {
    MutexLock lock(mu_);
    released.swap(held_[address]);
    held_.erase(address);
  }
  for (auto& [number, held] : released) held.answer();
}

int FakeCluster::held() const {
  MutexLock lock(mu_);
  int held = 0;
  for (const auto& [address, requests] : held_) held += static_cast<int>(requests.size());
  return held;
}

std::vector<FakeCluster::Request> FakeCluster::requests() const {
  MutexLock lock(mu_);
  return requests_;
}

int FakeCluster::coordinator_calls() const {
  MutexLock lock(mu_);
  return coordinator_calls_;
}

std::unique_ptr<CoordinatorChannel> FakeCluster::MakeCoordinator() {
  return std::make_unique<Coordinator>(*this);
}

std::unique_ptr<NodeChannel> FakeCluster::MakeChannel(const std::string& address, Timer& timer) {
  return std::make_unique<Channel>(*this, address, timer);
}

}  // namespace embla::client
