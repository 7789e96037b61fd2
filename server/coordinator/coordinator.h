// The coordinator's state machine: membership, plan, tables and sessions over a StateStore. Pure
// logic: an event and the time go in, the state changes in the store first, then effects come out
// for server/rpc to carry out. No threads, sockets or clocks.
//
// Every fact that must survive is in the store before a method returns (but see BeginWrites):
// opening a Coordinator on the same store goes on where the last one stopped. Liveness and
// installed versions are not facts: nodes report them again.
//
// Failpoints (core/base/failpoint.h): coordinator.registered; those of unit_driver.h and
// move_jobs.h.
//
// Thread safety: none; the caller serialises. Methods may write the store, so they may wait for a
// disk. After each call that is not const, drain TakeEffects.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/cluster_key.h"
#include "core/base/session_proof.h"
#include "core/plan/plan.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/placement.h"
#include "server/coordinator/directory_records.h"
#include "server/coordinator/effects.h"
#include "server/coordinator/lost_rows.h"
#include "server/coordinator/membership.h"
#include "server/coordinator/move_job.h"
#include "server/coordinator/plan_history.h"
#include "server/coordinator/session_leases.h"
#include "server/coordinator/session_ranks.h"
#include "server/coordinator/session_registry.h"
#include "server/coordinator/session_turns.h"
#include "server/coordinator/solved_plans.h"
#include "server/coordinator/state_records.h"
#include "server/coordinator/unit_driver.h"
#include "server/coordinator/unit_settler.h"
#include "server/migration/move_orders.h"
#include "server/state_store/state_store.h"

namespace embla {

class ClusterKey;

struct CoordinatorOptions {
  std::string new_cluster_id;  // Random, from the caller; used only when the store is empty.
  absl::Duration heartbeat_interval = absl::Seconds(1);  // Nodes are told to keep to this.
  absl::Duration dead_after = absl::Seconds(5);          // Without a heartbeat.
  absl::Duration create_wait_default = absl::Seconds(60);
  absl::Duration create_wait_max = absl::Minutes(10);
  // Tables that wait to be created; one request may have more if nothing else waits.
  std::size_t tables_queued_max = 1024;
  absl::Duration session_lease = absl::Minutes(10);  // session_leases.h
  ClusterKeyPtr key = {};                            // Null: a new random key.
  std::string key_path = {};  // Its file, as nodes of this host find it. Empty: there is none.
  std::uint32_t boot = 0;  // The first half of sessions' ids (session_records.h). 0: a random one.

  absl::Status Validate() const;
};

// Tables that are created together: all of them in one version of the plan, or none.
struct CreateRequest {
  std::vector<planner::TableToPlace> tables;
  // A table of the same name may exist, if it is as asked for, and is left as it is: spec and, but
  // for `auto`, sharding; where it lies may have changed. Else all that differs is an error.
  bool if_not_exists = false;
  absl::Duration wait = {};  // From the call; 0: the default.
};

struct TableChange {
  TablePlan table;
  PlanVersion plan_version{};
};

struct ClusterView {
  std::string cluster_id;
  PlanVersion plan_version{};
  std::uint32_t nodes_live = 0;
  std::uint32_t nodes_total = 0;
  std::uint64_t nodes_died = 0;  // How often one was declared dead since Open.
  std::uint32_t tables = 0;
  std::uint64_t sessions_opened = 0;  // Since Open.
  std::uint64_t sessions_closed = 0;
  std::uint64_t sessions_expired = 0;  // Closed because their leases were over.
  std::uint64_t sessions_open = 0;     // Sessions heard of since Open.
  std::uint64_t rows_lost = 0;         // With nodes, or with their directories.
  absl::Time started;                  // When this coordinator opened the store.
  std::uint64_t generation = 1;  // +1 each time that the store was found to have gone back in time.
  std::uint32_t tables_aside = 0;  // Not among `tables`.
};

struct SessionRequest {
  std::string client_name = {};  // For people.
  // The same over its restarts. Empty: the session belongs to no trainer.
  std::string trainer = {};
  std::uint64_t client_nonce = 0;  // With a trainer: of the client, not 0.
  SessionId replaces{};            // With a trainer: its session before, which is to be closed.
  // For tables with synchronous steps: the trainer's number, and how many trainers there are.
  std::optional<Rank> rank = {};
  std::uint32_t ranks = 0;  // 0: there is no rank.
};

struct SessionGrant {
  SessionId session{};  // 0: none, as SessionRequest::replaces is not
  SessionId latest{};   // the trainer's latest session.
  std::uint64_t turn = 0;
  SessionProof proof{};
};

// An open session, for people.
struct SessionView {
  SessionId session{};
  std::string trainer = {};       // Empty: the session belongs to no trainer.
  std::optional<Rank> rank = {};  // With `ranks`: what it has declared for synchronous steps.
  std::uint32_t ranks = 0;
  int watches = 0;  // Calls by which its client keeps it. 0: its lease runs.
};

// Stated nodes for a dry plan, named n0, n1, ...; nodes == 0 means the live cluster.
struct StatedTopology {
  std::uint32_t nodes = 0;
  std::uint32_t devices_per_node = 0;
  std::int64_t device_memory_bytes = 0;
};

struct ForgetRequest {
  std::string node;
  bool lose_rows = false;
  bool dry_run = false;  // Only says what would be lost.
};

struct ForgottenNode {
  std::vector<LostRows> lost;
  std::optional<JobView> job;  // Not in a dry run.
};

// All that decides where a table is placed.
struct PlacementQuestion {
  TableSpec spec;
  PlacementRequest request;
  std::vector<NodeSpec> nodes;  // With the memory that is not promised to moves.
  PlanPtr plan;                 // Its tables have memory there. Null: none has.
};
// Changes nothing. Errors: those of PlaceOrChoose.
absl::StatusOr<TablePlan> PlanTable(const PlacementQuestion& question, const GivenUp& given_up);

class MoveJobs;

class Coordinator final : private MoveCluster {
 public:
  ~Coordinator() override;

  // Loads everything, or creates a cluster in an empty store. DataLoss: the store's content is
  // not a coordinator's. `store` is not owned and outlives this object.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Open(StateStore& store,
                                                           const CoordinatorOptions& options,
                                                           absl::Time now);

  // --- Nodes. The id is stable by name. Errors: AlreadyExists (another live process has the name),
  // InvalidArgument (name, address, devices), FailedPrecondition (another cluster's or another
  // node's directory, rows that are missing and not given up, or other devices than those its
  // slices were planned for).
  // Unavailable: a new version is needed, and not all nodes were heard yet (MayGiveNumbers).
  // DataLoss: the node's tables or ids cannot be what they are called here.
  // A new node or a new address is a new plan version. Send the node GetPlan() afterwards.
  absl::StatusOr<NodeId> RegisterNode(const NodeRegistration& registration, absl::Time now);
  // NotFound: this boot_id is not the registered one; its link should be closed.
  absl::Status Heartbeat(NodeId node, std::uint64_t boot_id, const HeartbeatInfo& info,
                         absl::Time now);
  // The node's link has closed. Ignored unless `boot_id` is the registered one.
  void NodeDisconnected(NodeId node, std::uint64_t boot_id, absl::Time now);
  // Call at least every heartbeat interval: deaths and deadlines happen here.
  void Tick(absl::Time now);

  // --- Tables.
  // Plans the tables and publishes them; a CompleteChange effect with this id tells the outcome
  // when every node that holds a slice has answered. Failed changes are rolled back first. Changes
  // run one at a time, in order. A restart in the middle leaves all of the tables or none.
  // Errors here: InvalidArgument, AlreadyExists, ResourceExhausted (no room on a device, or too
  // many changes queued), Unavailable (a node that is needed is down; names it),
  // FailedPrecondition (a table exists and differs).
  absl::StatusOr<ChangeId> StartCreateTables(CreateRequest request, absl::Time now);
  // The same for one.
  absl::StatusOr<ChangeId> StartCreateTable(const TableSpec& spec, const PlacementRequest& request,
                                            absl::Duration wait, absl::Time now) {
    return StartCreateTables({.tables = {{spec, request}}, .wait = wait}, now);
  }
  // NotFound when it is complete or never was.
  absl::StatusOr<ChangeProgress> ChangeState(ChangeId change) const;
  // NotFound; FailedPrecondition while the table is being created.
  absl::StatusOr<PlanVersion> DropTable(std::string_view name, absl::Time now);
  // Keys and values as in core/plan/table_options.h. All or nothing.
  absl::StatusOr<TableChange> SetTable(std::string_view name,
                                       const std::map<std::string, std::string>& values,
                                       absl::Time now);
  // Prepares the question where StartCreateTable would place the table: on the live cluster, as it
  // is now, or on stated CPU nodes. For PlanTable, which takes time, on any thread; this call is
  // short.
  absl::StatusOr<PlacementQuestion> AskPlacement(const TableSpec& spec,
                                                 const PlacementRequest& request,
                                                 const StatedTopology& topology) const;

  // --- What the store had forgotten (coordinator_restore.cc).
  // The table that is kept aside is served again. `id` 0: any. NotFound; InvalidArgument: several
  // are called so; AlreadyExists: a table of its name is served.
  absl::StatusOr<TableChange> AdoptTable(std::string_view name, TableId id, absl::Time now);
  // `name` empty: any. Errors as for AdoptTable.
  absl::StatusOr<PlanVersion> DropAside(std::string_view name, TableId id, absl::Time now);
  // The node gives up rows of units of the table that are another node's. It may do so a moment
  // later. NotFound; Unavailable: the node is down.
  absl::Status DropLeftovers(std::string_view table, const std::string& node);

  // --- Plans.
  // Where plans of old and solved ones are read, on any thread (plan_history.h, solved_plans.h).
  const StateStore& store() const { return store_; }
  // See solved_plans.h.
  absl::Status PutSolved(const planner::ProblemDigest& inputs, const std::string& plan_json,
                         absl::Time now) {
    return PutSolvedPlan(store_, inputs, plan_json, now);
  }

  // --- Jobs that move units (move_jobs.h); one runs at a time. While one does, or a table is being
  // created, the job is queued, and planned when it begins.
  // Errors: those of move_plan.h; ResourceExhausted: too many jobs are queued.
  absl::StatusOr<JobView> StartJob(const JobRequest& request, absl::Time now);
  absl::StatusOr<JobView> ControlJob(std::uint64_t id, JobControl control, absl::Time now);
  absl::StatusOr<JobView> GetJob(std::uint64_t id, absl::Time now) const;
  JobCounts CountJobs(absl::Time now) const;
  std::vector<JobView> ListJobs(absl::Time now) const;  // The newest first.
  // The newest `count` of them, without their moves: cheap, whatever they move.
  std::vector<JobView> NewestJobs(std::size_t count, absl::Time now) const;
  // The recorded units of a table. NotFound, DataLoss.
  absl::StatusOr<std::vector<std::pair<UnitId, UnitRecord>>> ListUnits(
      std::string_view table) const;
  // Takes a node that is down out of the cluster, for ever, by a job. Rows of all tables that only
  // it has begin at initial values on other nodes, data_parallel tables go on with their other
  // copies, and a process with its directory is refused from now on.
  // Errors: NotFound; FailedPrecondition: the node is not down, or rows would be lost without
  // `lose_rows`: lists them.
  absl::StatusOr<ForgottenNode> ForgetNode(const ForgetRequest& request, absl::Time now);
  // Takes in a node's reports about units on the move. Reports may be lost, repeated and late.
  void OnMoveReports(NodeId node, std::span<const UnitReport> reports, absl::Time now);

  // --- Sessions.
  // A trainer has at most one open session. A question may come twice, and late: its client gets
  // the session that it has, and none is closed but the one that is named. Errors: InvalidArgument
  // (name, client_nonce, rank); Unavailable: some nodes, named, do not refuse the session before
  // yet; ask again. It is not closed before all of them are there to hear of it. PermissionDenied:
  // the session of this client is closed. ResourceExhausted: too many have ranks.
  absl::StatusOr<SessionGrant> OpenSession(const SessionRequest& request);
  // Nodes hear of it soon. The session's rank leaves its tables, as it does when the lease is over,
  // but not when the trainer's next session replaces this one and has the same rank.
  // PermissionDenied: `proof` is none of `session`.
  absl::Status CloseSession(SessionId session, const SessionProof& proof);
  // The session's rank is to be a member of the tables: a plan to come has it. To be repeated until
  // then. All or nothing.
  // PermissionDenied: `proof` is none of `session`, or it is closed; InvalidArgument: thousands of
  // tables; NotFound: no such table;
  // FailedPrecondition: a table without synchronous steps, a session without a rank, or one whose
  // rank of a table is another open session's.
  absl::Status JoinSteps(SessionId session, const SessionProof& proof,
                         std::span<const TableId> tables, absl::Time now);
  // Its client keeps it, by `watches` more calls; negative: some have ended. Sessions that are
  // closed are ignored. Requires: its proof was verified.
  void HearSession(SessionId session, int watches);
  // The first `count` by id of those that ClusterView::sessions_open counts.
  std::vector<SessionView> FirstSessions(std::size_t count) const;
  // News for a node whose link opens.
  SessionNews all_sessions() const { return sessions_.all(); }
  const ClosedSessions& closed_sessions() const { return sessions_.closed(); }
  const ClusterKey& key() const { return *options_.key; }

  // Writes of calls between these two become durable by EndWrites, all at once: until it is OK
  // carry out no effect and answer nobody. Unavailable: the store is broken, and what is here is
  // ahead of it: make no more calls.
  void BeginWrites() { store_.BeginBatch(); }
  absl::Status EndWrites() { return store_.EndBatch(); }

  // Nothing is written down: a process that ends forgets it. Requires: the node is live.
  void SetLogLevel(NodeId node, LogLevel level) {
    effects_.emplace_back(SendLogLevel{node, level});
  }

  // Returns the effects to carry out now, oldest first.
  std::vector<Effect> TakeEffects();

  PlanPtr GetPlan() const { return plan_; }
  Revision store_revision() const { return store_.revision(); }
  ClusterView Status() const;
  std::vector<NodeView> Nodes() const;
  // Whether Tick should be called again within milliseconds.
  bool wants_tick() const;
  const CoordinatorOptions& options() const { return options_; }

 private:
  // Tables that were asked for and not yet planned.
  struct QueuedCreate {
    ChangeId id{};
    CreateRequest request;
    absl::Time deadline;
  };
  // The answer to the caller that waits for the pending creation.
  struct AwaitedCreate {
    ChangeId id{};  // 0: no caller waits.
    std::vector<CreatedTable> tables;
    std::vector<std::string> left_out;  // See CompleteChange::left_out.
  };

  Coordinator(StateStore& store, const CoordinatorOptions& options, LoadedState state,
              SessionRegistry sessions, absl::Time now);

  absl::Status CheckNewTables(const CreateRequest& request) const;
  absl::Status CheckRoomInQueue(const QueuedCreate& create) const;
  // The tables of `request` that exist, null in place of the others.
  // AlreadyExists; FailedPrecondition: some differ from what is asked for; says how.
  absl::StatusOr<std::vector<TablePtr>> FindExisting(const CreateRequest& request) const;
  // Nodes that one of the tables may lie on and that get no slices now, and why.
  std::vector<std::string> LeftOut(std::span<const planner::TableToPlace> tables) const;
  // Unavailable, FailedPrecondition: a node that is named gets no slices now.
  absl::Status CheckNamedNodes(const PlacementRequest& request) const;
  // The nodes that get slices now, with the memory that is free when the running job is over.
  // Unavailable: there is none.
  absl::StatusOr<std::vector<NodeSpec>> NodesForPlacement() const;
  absl::StatusOr<std::vector<TablePlan>> Place(std::span<const planner::TableToPlace> tables) const;
  // Takes in what others know of directories, and this store may have forgotten.
  absl::Status HearTestimony(const NodeRegistration& registration);
  // Unavailable: nodes that were not heard yet may know more of the node's directory than this
  // store; names them.
  absl::Status AwaitTestimonies(const NodeRegistration& registration, absl::Time now) const;
  void SendTestimonies(absl::Time now);
  // FailedPrecondition says what is lost.
  absl::Status CheckDirectory(const NodeRegistration& registration) const;
  // Tables with units of which the node is an open move's target: it may have taken them over, and
  // nobody has said so yet.
  std::string TablesOnTheirWayTo(NodeId node) const;
  // The node was let in; its record is written, and what it lost is counted.
  absl::Status TakeDirectory(const NodeSpec& node, const NodeRegistration& registration,
                             bool was_known);
  // Whether no move of a predecessor that lost something can take place any more.
  bool HaveLostMovesEnded(NodeId node) const;
  // Lets the node answer everybody, once that is so, and it has let go of what is another node's.
  // Unavailable: the node is to register again.
  absl::Status LetServeIfItMay(NodeId node);
  absl::Status UpdateNode(const NodeSpec& known, NodeSpec reported, absl::Time now);
  absl::Status BeginCreate(const QueuedCreate& create, absl::Time now);
  // After the pending creation has begun, or was found in the store.
  void FindPendingHolders();
  // "table clicks", or some of the names and how many there are.
  std::string PendingText() const;
  // The decision on the pending creation: OK when every node has installed it, an error when it
  // must be rolled back, none while it is open.
  std::optional<absl::Status> JudgePending(absl::Time now) const;
  void SettlePending(absl::Time now);
  void StartQueued(absl::Time now);
  bool IsPending(const TablePlan& table) const;
  void CountAside();
  // Writes `edit` as the next plan version; then the new plan is current and published.
  absl::Status CommitPlan(PlanEdit edit);
  void Complete(AwaitedCreate create, absl::Status status);
  // Nodes whose word counts when sessions are closed: those that could take an update.
  bool MayTakeUpdates(const NodeView& node) const;
  std::uint64_t HeardBy(const NodeView& node) const;
  void SettleSessions();
  // ResourceExhausted: too many are open.
  absl::StatusOr<SessionId> NextSession();
  absl::StatusOr<SessionGrant> OpenTrainerSession(const SessionRequest& request);
  SessionGrant Grant(SessionId session, const SessionRequest& request);
  // To a client that asks again.
  absl::StatusOr<SessionGrant> GrantAgain(SessionId session, const SessionRequest& request);
  // OK: every node refuses `session`, or it is none.
  absl::Status EndSession(SessionId session, const SessionRequest& request);
  absl::Status CheckProof(SessionId session, const SessionProof& proof) const;
  // Names of nodes that may take updates and are away.
  std::vector<std::string> NodesAway() const;
  absl::Status CloseNow(std::span<const SessionId> sessions);
  void EndLeases(absl::Time now);
  void PublishSessionNews();

  // Members of tables with synchronous steps (coordinator_steps.cc).
  static absl::Status CheckRank(const SessionRequest& request);
  // Writes the rank of `session` down, which takes over the claims of the session it replaces.
  absl::Status DeclareRank(SessionId session, const SessionRequest& request);
  // `session` is about to be closed for the one that is asked for, which may have the same rank.
  absl::Status KeepRank(SessionId session, const SessionRequest& request);
  // The fate of ranks' records when `session` joins. Errors of JoinSteps.
  absl::StatusOr<SessionRanks::Changes> ClaimsOf(SessionId session,
                                                 const std::set<TableId>& tables) const;
  // The change that the table's members need; none: they need none now.
  std::optional<MemberChange> NextChange(const TablePlan& table) const;
  std::vector<Rank> LeavingOf(const TablePlan& table) const;
  // Requires: the session has declared a rank.
  bool HasLeft(SessionId session) const;
  MemberChange SilenceOf(const TablePlan& table) const;  // Without ranks: no rank is silent.
  std::vector<Rank> JoiningOf(const TablePlan& table) const;
  // The first step that no node has made, when all that count have answered to the open change.
  std::optional<std::uint64_t> NextStepOf(const TablePlan& table) const;
  // Opens or decides the table's change, if it is time to.
  void AdvanceSteps(TableId id, absl::Time now);
  void AdvanceStepsBy(std::span<const StepReport> reports, absl::Time now);
  void AdvanceAllSteps(absl::Time now);
  // Ends wishes that have come true, or whose sessions are closed.
  void DropWishes(TableId id);
  // Deletes what closed sessions claim no more.
  void TidyRanks();

  // Takes in what the node has seen and has, before it gets a plan. Errors of RegisterNode.
  absl::Status HearOf(const NodeRegistration& registration, absl::Time now);
  absl::Status HearUnits(NodeId node, const NodeRegistration& registration, absl::Time now);
  bool IsBehind(const NodePast& seen) const;
  // The store has gone back in time, as `witness` shows.
  absl::Status JumpBeyond(const NodePast& seen, const std::string& witness, absl::Time now);
  // Makes `next` the head; what it leaves out is a gap.
  absl::Status Jump(PlanHead next, std::string cause, absl::Time now);
  absl::Status MergePlan(const Plan& plan, const std::string& name, absl::Time now);
  absl::Status CheckSameTables(const Plan& plan, const std::string& name) const;
  absl::Status MergeNodes(const Plan& plan, const std::string& name, absl::Time now);
  absl::Status MergeSteps(const Plan& plan, const std::string& name, absl::Time now);
  absl::Status MergeForgotten(const Plan& plan, const NumberGap& gap, const std::string& name,
                              absl::Time now);
  absl::Status PutTablesAside(const Plan& plan, const std::string& name, absl::Time now);
  bool HasHeardAll() const;
  std::vector<std::string> NodesNotHeard() const;
  // OK when no node can have seen a number that is given out next. Unavailable: nodes are waited
  // for, and named.
  absl::Status MayGiveNumbers(absl::Time now);
  void BeginGrace(absl::Time now);
  absl::StatusOr<TablePlan> FindAside(std::string_view name, TableId id) const;
  absl::Status NoSuchTable(std::string_view name) const;

  MoveScope Scope() const;
  void BeginQueuedJob(absl::Time now);
  absl::StatusOr<JobView> Undrain(const std::string& name, bool dry_run);
  // FailedPrecondition: the process has what was forgotten.
  absl::Status CheckNotForgotten(const NodeRegistration& registration) const;
  // A node that no job forgets any more, and of which nothing was forgotten, may come back.
  void SettleForgotten();
  // FailedPrecondition: a job moves the table.
  absl::Status CheckNotMoving(const TablePlan& table) const;
  // Deletes records of units of tables that are gone, some at a time.
  void ForgetDroppedUnits();

  // MoveCluster:
  PlanPtr plan() const override { return plan_; }
  bool IsLive(NodeId node) const override;
  bool IsForgotten(NodeId node) const override { return forgotten_.contains(node); }
  bool IsLost(NodeId node, Revision written) const override {
    return directories_.IsLost(node, written);
  }
  UnitStanding StandingOf(NodeId node, const UnitId& unit) const override {
    return settler_.StandingOf(node, unit);
  }
  absl::StatusOr<Revision> PutPlan(PlanEdit edit) override;

  StateStore& store_;  // Not owned; outlives this object.
  const CoordinatorOptions options_;
  const absl::Time started_;
  StateRecords records_;
  Membership membership_;
  PlanPtr plan_;
  std::uint32_t tables_aside_ = 0;  // Tables of plan_ that are kept aside.
  std::set<NodeId> drained_;
  std::map<NodeId, std::string> forgotten_;  // Names; also of nodes that the plan has no more.
  DirectoryRecords directories_;
  std::set<std::string> witnesses_;     // Names of nodes whose testimony was heard since Open.
  std::set<NodeId> testified_;          // Nodes whose records this store had lost.
  std::map<NodeId, std::string> told_;  // The testimony last sent.
  absl::Time told_at_ = absl::InfinitePast();
  std::uint64_t rows_lost_ = 0;
  bool has_dropped_units_ = true;  // True unless it is known that there are none.
  std::unique_ptr<MoveJobs> jobs_;
  AwaitedCreate awaited_;             // The pending creation.
  std::set<NodeId> pending_holders_;  // Nodes with a slice of one of its tables.
  std::deque<QueuedCreate> queue_;
  std::vector<Effect> effects_;
  std::uint64_t last_change_ = 0;
  SessionRegistry sessions_;
  SessionTurns turns_;
  SessionLeases leases_;
  SessionRanks ranks_;
  std::map<TableId, std::map<Rank, SessionId>> wishes_;  // To join; those who ask, ask again.
  std::map<TableId, std::set<Rank>> left_;  // Claimed by sessions that were closed, at the tick.
  // Sessions of earlier processes that are not closed; true unless it is known that there are none.
  bool has_earlier_sessions_ = true;
  UnitSettler settler_;
  std::uint64_t opened_generation_ = 0;  // The store's generation at Open.
  Revision opened_revision_{};
  std::set<NodeId> heard_;   // Nodes that have registered since Open.
  std::set<NodeId> held_;    // Nodes that were not let serve since they registered.
  std::set<NodeId> unsure_;  // Nodes that may have more by now than they said when they registered.
  absl::Time wait_for_nodes_until_;
  bool has_jumped_ = false;   // Since Open.
  bool has_given_ = false;    // A node was allowed to make a change since Open.
  bool has_skipped_ = false;  // Numbers that nodes not in heard_ may have seen.
  PlanVersion opened_at_{};   // The plan's, at Open.
  absl::Time pending_grace_ = absl::InfinitePast();
  std::uint64_t nodes_died_ = 0;
  std::uint64_t sessions_opened_ = 0;
  std::uint64_t sessions_closed_ = 0;
  std::uint64_t sessions_expired_ = 0;
};

}  // namespace embla
