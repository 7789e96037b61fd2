// A coordinator and shard servers in memory, which fail when told to.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/route/testing/fake_nodes.h"
#include "client/transport/coordinator_channel.h"
#include "client/transport/node_channel.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"

namespace embla::client {

// The proof of session 77, the only one that is granted.
inline constexpr SessionProof kFakeProof{'p', 'r', 'o', 'o', 'f'};

// Thread safety: every method may be called from any thread.
class FakeCluster {
 public:
  // A data request as it arrived.
  struct Request {
    std::string address;
    bool lookup = false;
    std::uint32_t replica_group = 0;  // From the request's first part.
    PlanVersion plan_version{};
    UpdateSeq seq{};
    UpdateSeq first_incomplete{};
    PlanVersion routed_since{};
    SessionId session{};
    SessionProof proof{};
    absl::Time time;
    absl::Status answer;
    std::uint64_t step = 0;
    std::optional<StepClaim> claim = {};
    std::size_t ids = 0;                      // Ids in all parts of an update.
    std::optional<float> learning_rate = {};  // From the request's first part.
    TraceContext trace = {};
  };

  // The nodes have `plan`; the coordinator says so.
  explicit FakeCluster(PlanPtr plan) : coordinator_plan_(plan), nodes_(std::move(plan)) {}

  // The plan that the coordinator answers from now on, and that the nodes follow.
  void SetCoordinatorPlan(PlanPtr plan);
  void SetNodePlan(PlanPtr plan);
  void SetCoordinatorStatus(absl::Status status);
  // Drops the next `count` questions to the coordinator without an answer: their deadlines pass.
  void LoseCoordinatorCalls(int count);
  absl::Time last_lost_deadline() const;
  // The latest session of every trainer: what clients with a trainer's name have to replace.
  void SetTrainerSession(SessionId session);
  std::vector<SessionRequest> session_requests() const;

  // The next requests to `address` get these answers; after that it answers well again.
  void FailNext(const std::string& address, std::vector<absl::Status> statuses);
  // All requests to `address` get this answer until it is OK.
  void FailAll(const std::string& address, absl::Status status);
  // Requests to `address` are answered when Release is called, or DeadlineExceeded at their
  // deadlines.
  void Hold(const std::string& address);
  void Release(const std::string& address);
  int held() const;  // Requests, of all addresses.

  // Nodes leave units of 10 rows out of updates at random: some are frozen for 5 ms, some have
  // moved to where the next of `plans` says, from then on the plan of nodes and coordinator.
  void RefuseUnits(std::uint32_t seed, std::deque<PlanPtr> plans);
  // All rows are left out from now on.
  void RefuseAll(RefusedUnit::Reason reason);
  int refusals() const;

  // From now on nodes that are asked for units of 10 rows that another node has by the nodes' plan
  // name that node, in an epoch that is the plan's version.
  void GiveHints();
  // `node` has not the rows [row_begin, row_end) of any table, and says so, until SayNothing.
  struct Saying {
    NodeId node{};
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    NodeId owner{};
    std::uint64_t epoch = 0;
    int answers = -1;  // Number of answers that say so; -1: all.
  };
  void Say(const Saying& saying);
  void SayNothing();

  // Sets the units of the next contributions that do not step: one entry per request.
  void RefuseClaims(std::deque<std::vector<RefusedClaim>> refused);
  // Every unit of the table has made the steps before `step`, and no other.
  bool AllAt(TableId table, std::uint64_t step) const;
  // Wishes for steps: of these tables, so often.
  std::vector<std::vector<TableId>> step_wishes() const;

  // The next node that is to average `row` leaves it, and what is behind it in its slice, out.
  void LeaveOutOnce(std::int64_t row);

  std::vector<Request> requests() const;
  const PlainTable& table(TableId id) const { return nodes_.table(id); }
  int coordinator_calls() const;

  std::unique_ptr<CoordinatorChannel> MakeCoordinator();
  // The address is that of a node, or that followed by ":" and anything.
  std::unique_ptr<NodeChannel> MakeChannel(const std::string& address, Timer& timer);

 private:
  class Coordinator;
  class Channel;
  struct Held {
    std::function<void()> answer;
    std::function<void()> expire;
  };

  // The scripted answer to the next request at `address`; OK: none.
  absl::Status Scripted(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AskCoordinator(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename NodeRequest>
  NodeReply Answer(const std::string& address, NodeId node, const NodeRequest& request,
                   absl::Time now);
  NodeReply AnswerContribution(NodeId node, const NodeUpdate& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<RefusedClaim> RefuseClaim(const UnitSet& here) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FollowNextPlan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the units of the parts that are not on `node`, by GiveHints and Say.
  template <typename Part>
  std::vector<RefusedUnit> Moved(NodeId node, const std::vector<Part>& parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<RefusedClaim> MovedClaims(TableId table, const UnitSet& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the units of `request` that are left out.
  std::vector<RefusedUnit> Refuse(const NodeUpdate& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  PlanPtr coordinator_plan_ ABSL_GUARDED_BY(mu_);
  absl::Status coordinator_status_ ABSL_GUARDED_BY(mu_);
  int coordinator_calls_ ABSL_GUARDED_BY(mu_) = 0;
  FakeNodes nodes_;
  std::map<std::string, std::deque<absl::Status>> next_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, absl::Status> all_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::map<int, Held>> held_ ABSL_GUARDED_BY(mu_);
  int last_held_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  bool refuses_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<RefusedUnit::Reason> refuses_all_ ABSL_GUARDED_BY(mu_);
  bool gives_hints_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Saying> sayings_ ABSL_GUARDED_BY(mu_);
  std::mt19937 random_ ABSL_GUARDED_BY(mu_);
  std::deque<PlanPtr> plans_ ABSL_GUARDED_BY(mu_);
  int refusals_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::vector<RefusedClaim>> refused_claims_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<TableId>> step_wishes_ ABSL_GUARDED_BY(mu_);
  std::int64_t moving_row_ ABSL_GUARDED_BY(mu_) = -1;
  int coordinator_calls_to_lose_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time last_lost_deadline_ ABSL_GUARDED_BY(mu_);
  SessionId trainer_session_ ABSL_GUARDED_BY(mu_){};
  std::vector<SessionRequest> session_requests_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::client
