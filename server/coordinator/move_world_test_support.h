// A coordinator and nodes that run the protocol of moves, over a network that loses, repeats and
// reorders: what move_jobs_test.cc drives. Rows are left out: the model checker (tests/model) looks
// at them.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "server/coordinator/coordinator_test_support.h"
#include "server/coordinator/unit_records.h"
#include "server/coordinator/unit_tiling.h"
#include "server/migration/node_step.h"

namespace embla {

class MoveWorld {
 public:
  static constexpr std::uint32_t kChunks = 2;

  explicit MoveWorld(unsigned seed) : random_(seed) {}

  CoordinatorHarness& harness() { return c_; }
  Coordinator& coordinator() { return *c_; }

  NodeId AddNode(const std::string& name) {
    const NodeId id = c_.Register(name);
    names_[id] = name;
    boots_[id] = 1;
    return id;
  }

  // A row_wise table of 24 units on the nodes that are there.
  void AddTable(const std::string& name) {
    std::vector<NodeId> nodes;
    for (const auto& [id, node_name] : names_) nodes.push_back(id);
    TableSpec spec = CoordinatorHarness::Spec(name);
    spec.row_granules = 24;
    ASSERT_THAT(c_->StartCreateTable(spec, {.sharding = ShardingType::kRowWise}, {}, c_.now()),
                testing::IsOk());
    for (const NodeId node : nodes) ASSERT_THAT(c_.Install(node), testing::IsOk());
    static_cast<void>(c_.Outcomes());
    ForEachUnit([&](const UnitId& unit, DeviceId owner) {
      for (const NodeId node : nodes) {
        if (unit.table != c_->GetPlan()->FindTable(name)->spec.id) continue;
        const UnitDurable durable = node == owner.node ? FreshUnit(kChunks) : UnitDurable{};
        units_[{node, unit}] = Recovered(durable, {}, kChunks);
        devices_[{node, unit}] = owner.index;
      }
    });
  }

  // One random thing happens.
  void Step() {
    switch (random_() % 16) {
      case 0:
        return CoordinatorTick(absl::Milliseconds(random_() % 400));
      case 1:
        return NodeTick();
      case 2:
        return Update();
      case 4:
        if (has_faults_ && random_() % 8 == 0) RestartCoordinator();
        return;
      case 5:
        if (has_faults_ && random_() % 8 == 0) RestartNode();
        return;
      default:
        return Deliver();
    }
  }
  void StopFaults() { has_faults_ = false; }

  // The coordinator is another process, and every node links again.
  void RestartCoordinator() {
    c_.Restart();
    for (const auto& [id, name] : names_) Register(id);
    TakeEffects();
  }
  void TakeEffects() {
    for (Effect& effect : c_->TakeEffects()) {
      if (const auto* orders = std::get_if<SendOrders>(&effect)) {
        for (const UnitOrder& order : orders->orders) Send({}, orders->node, order.unit, order);
      } else if (const auto* serve = std::get_if<LetServe>(&effect)) {
        held_.erase(serve->node);
      }
    }
  }
  void CoordinatorTick(absl::Duration step) {
    c_.Advance(step);
    for (const auto& [id, name] : names_) {
      if (dead_.contains(id)) continue;
      const absl::Status heard = c_.Install(id, boots_[id]);
      if (absl::IsUnavailable(heard)) {
        Register(id);
      } else {
        ASSERT_THAT(heard, testing::IsOk());
      }
    }
    c_->Tick(c_.now());
    TakeEffects();
  }
  const NodeId* FindNode(const std::string& name) const {
    for (const auto& [id, known] : names_) {
      if (known == name) return &id;
    }
    return nullptr;
  }
  void Kill(NodeId node) { dead_.insert(node); }
  // The node is lost with its directory, and the operator says so.
  absl::StatusOr<ForgottenNode> Forget(const std::string& name, bool lose_rows) {
    const NodeId node = *FindNode(name);
    auto forgotten = c_->ForgetNode({.node = name, .lose_rows = lose_rows}, c_.now());
    TakeEffects();
    if (!forgotten.ok()) return forgotten;
    names_.erase(node);
    std::erase_if(units_, [node](const auto& entry) { return entry.first.first == node; });
    return forgotten;
  }
  void Revive(NodeId node) {
    dead_.erase(node);
    c_.Register(names_[node]);
  }
  // The node's directory as it is now.
  void CopyDirectory(NodeId node) {
    copy_.clear();
    for (const auto& [at, state] : units_) {
      if (at.first == node) copy_[at.second] = state.durable;
    }
  }
  // The node dies, and its next process begins on the copy. Of the one before only peers hear
  // still.
  void RestoreDirectory(NodeId node) {
    for (auto& [at, state] : units_) {
      if (at.first != node) continue;
      state = Recovered(copy_[at.second], {}, kChunks);
      state.is_covered = Owns(state);
    }
    std::erase_if(messages_, [node](const Message& m) {
      return (m.from == node && m.to == NodeId{}) || (m.from == NodeId{} && m.to == node);
    });
    c_->NodeDisconnected(node, boots_[node], c_.now());
    ++boots_[node];
    held_.insert(node);
    Register(node);
    TakeEffects();
  }
  bool IsHeld(NodeId node) const { return held_.contains(node); }
  // Every reservation of memory fails from now on, or does not.
  void RefuseAll(bool refuse) { refuses_ = refuse; }

  // Checks the invariants: the plan is valid and agrees with the records, at most one node takes
  // updates of a unit, and it is the owner by the record, or by a later epoch.
  void Check() {
    const Plan& plan = *c_->GetPlan();
    ASSERT_THAT(plan.Validate(), testing::IsOk());
    ForEachUnit([&](const UnitId& unit, DeviceId device) {
      const NodeId owner = device.node;
      const auto stored = ReadUnit(c_.store(), plan, unit);
      ASSERT_THAT(stored, testing::IsOk());
      ASSERT_EQ(stored->record.owner, owner) << KeyOf(unit) << ToString(stored->record);
      int writers = 0;
      for (const auto& [id, name] : names_) {
        const UnitUpdate update{.session = SessionId{1}, .seq = UpdateSeq{++seq_}, .chunks = {0}};
        const auto at = units_.find({id, unit});
        if (at == units_.end()) continue;
        const bool takes =
            !held_.contains(id) && CheckUpdate(at->second, update).status == PartStatus::kApplied;
        const bool is_newer = at->second.durable.epoch > stored->record.epoch;
        ASSERT_TRUE(!takes || id == owner || is_newer)
            << name << " takes updates of " << KeyOf(unit);
        writers += takes ? 1 : 0;
      }
      ASSERT_LE(writers, 1) << KeyOf(unit);
    });
  }
  // At rest: the owners have their units on the devices of the plan, and nobody else has anything.
  void CheckAtRest() {
    ForEachUnit([&](const UnitId& unit, DeviceId owner) {
      EXPECT_EQ((devices_[{owner.node, unit}]), owner.index) << KeyOf(unit);
      for (const auto& [id, name] : names_) {
        const UnitState& state = StateOf(id, unit);
        EXPECT_EQ(Owns(state), id == owner.node) << name << " " << KeyOf(unit);
        EXPECT_FALSE(IsFrozen(state)) << name << " " << KeyOf(unit);
        EXPECT_FALSE(state.durable.import.has_value()) << name << " " << KeyOf(unit);
      }
    });
  }

  // Until no job runs. False: too many steps.
  bool RunToEnd(std::uint64_t job, int steps_max) {
    for (int i = 0; i < steps_max; ++i) {
      Step();
      if (i % 50 == 0) Check();
      if (::testing::Test::HasFatalFailure()) return false;
      if (IsOver(c_->GetJob(job, c_.now())->job.state)) return true;
    }
    return false;
  }
  // No job runs: messages that are under way arrive, and who missed a record asks for it.
  void Settle() {
    StopFaults();
    is_settling_ = true;
    for (int i = 0; i < 20000; ++i) Step();
  }

  template <typename Visit>
  void ForEachUnit(const Visit& visit) {
    const PlanPtr plan = c_->GetPlan();
    for (const TablePlan& table : plan->tables()) {
      for (const UnitCut& cut : CutsOf(table)) {
        for (std::uint32_t granule = 0; granule < cut.owners.size(); ++granule) {
          visit(UnitId{table.spec.id, granule, cut.column_granule}, cut.owners[granule]);
        }
      }
    }
  }

 private:
  using Body = std::variant<UnitOrder, UnitReport, Pull, Chunk, FinalCut, Holds, Release, Covered>;
  struct Message {
    NodeId from{};  // 0: the coordinator.
    NodeId to{};
    UnitId unit;
    Body body;
  };

  void Register(NodeId node) {
    NodeRegistration registration = CoordinatorHarness::Registration(names_[node], boots_[node]);
    for (auto& [at, state] : units_) {
      if (at.first != node) continue;
      const UnitId& unit = at.second;
      registration.units.push_back({.table = unit.table,
                                    .column_granule = unit.column_granule,
                                    .granule_begin = unit.row_granule,
                                    .granule_end = unit.row_granule + 1,
                                    .standing = StandingOf(state),
                                    .device = devices_[at]});
    }
    ASSERT_THAT(c_->RegisterNode(registration, c_.now()), testing::IsOk());
  }

  UnitState& StateOf(NodeId node, const UnitId& unit) {
    const auto [entry, is_new] = units_.try_emplace({node, unit});
    if (is_new) entry->second = Recovered({}, {}, kChunks);
    return entry->second;
  }

  void Send(NodeId from, NodeId to, const UnitId& unit, const Body& body) {
    if (dead_.contains(to)) return;
    const Message message{from, to, unit, body};
    // Nodes do not ask again so soon that what is on its way only grows.
    if (messages_.size() < 400) return messages_.push_back(message);
    messages_[random_() % messages_.size()] = message;
  }

  void Deliver() {
    if (messages_.empty()) return;
    const std::size_t which = random_() % messages_.size();
    const Message message = messages_[which];
    const bool repeats = has_faults_ && random_() % 8 == 0;
    if (!repeats) {
      messages_[which] = messages_.back();
      messages_.pop_back();
    }
    if (has_faults_ && random_() % 8 == 0) return;
    if (dead_.contains(message.to) || dead_.contains(message.from)) return;
    if (message.to == NodeId{}) {
      const UnitReport reports[] = {std::get<UnitReport>(message.body)};
      c_->OnMoveReports(message.from, reports, c_.now());
      return TakeEffects();
    }
    if (held_.contains(message.to) && !std::holds_alternative<UnitOrder>(message.body)) return;
    std::visit([&](const auto& body) { Receive(message, body); }, message.body);
  }
  void Receive(const Message& m, const UnitOrder& order) {
    const bool is_open = order.record.phase == MovePhase::kOpen;
    if (is_open && order.record.target == m.to) targets_[{m.to, m.unit}] = order.target_device;
    On(m.to, m.unit, RecordEvent{order.record, order.source_is_lost});
    if (order.cancels) On(m.to, m.unit, CancelEvent{order.record, order.source_is_lost});
    if (!order.settles || Owns(StateOf(m.to, m.unit))) return;
    Report(m.to, m.unit, UnitReport::Kind::kSettled, order.record.move);
  }
  void Receive(const Message& m, const Pull& pull) { On(m.to, m.unit, PullEvent{m.from, pull}); }
  void Receive(const Message& m, const Chunk& chunk) { On(m.to, m.unit, ChunkEvent{chunk}); }
  void Receive(const Message& m, const FinalCut& cut) { On(m.to, m.unit, FinalEvent{cut}); }
  void Receive(const Message& m, const Holds& holds) {
    On(m.to, m.unit, HoldsEvent{m.from, holds});
  }
  void Receive(const Message& m, const Release& release) {
    On(m.to, m.unit, ReleaseEvent{m.from, release});
  }
  void Receive(const Message& m, const Covered& covered) {
    On(m.to, m.unit, CoveredEvent{covered});
  }
  void Receive(const Message&, const UnitReport&) {}

  void On(NodeId node, const UnitId& unit, const NodeEvent& event) {
    UnitState& state = StateOf(node, unit);
    NodeStep step = StepNode({.self = node, .chunks = kChunks}, state, event);
    state = std::move(step.state);
    for (const NodeAction& action : step.actions) {
      std::visit([&](const auto& a) { Do(node, unit, a); }, action);
    }
  }

  void Do(NodeId n, const UnitId& unit, const WriteRows& a) { On(n, unit, WrittenEvent{a.lsn}); }
  void Do(NodeId n, const UnitId& unit, const SendPull& a) { Send(n, a.to, unit, a.pull); }
  void Do(NodeId n, const UnitId& unit, const SendChunk& a) { Send(n, a.to, unit, a.chunk); }
  void Do(NodeId n, const UnitId& unit, const SendFinal& a) { Send(n, a.to, unit, a.cut); }
  void Do(NodeId n, const UnitId& unit, const SendReport& a) {
    constexpr UnitReport::Kind kKinds[] = {UnitReport::Kind::kHandedOver, UnitReport::Kind::kReady,
                                           UnitReport::Kind::kRefused, UnitReport::Kind::kAborted};
    Report(n, unit, kKinds[static_cast<int>(a.report.kind)], a.report.move);
  }
  void Do(NodeId n, const UnitId& unit, const SendHolds& a) { Send(n, a.to, unit, a.holds); }
  void Do(NodeId n, const UnitId& unit, const SendRelease& a) { Send(n, a.to, unit, a.release); }
  void Do(NodeId n, const UnitId& unit, const SendCovered& a) { Send(n, a.to, unit, a.covered); }
  // Records are on disk at once.
  void Do(NodeId n, const UnitId& unit, const LogAction& a) {
    if (const auto* const release = std::get_if<ReleaseRecord>(&a.record)) {
      On(n, unit, ReleaseSynced{release->released.move});
    } else if (std::holds_alternative<OwnRecord>(a.record)) {
      On(n, unit, OwnSynced{});
    }
  }
  void Do(NodeId n, const UnitId& unit, const ReserveImport& a) {
    On(n, unit, ReservedEvent{a.move, !refuses_});
  }
  void Do(NodeId n, const UnitId& unit, const InstallStaged&) {
    devices_[{n, unit}] = targets_[{n, unit}];
  }
  void Do(NodeId n, const UnitId& unit, const RelocateRows&) {
    devices_[{n, unit}] = targets_[{n, unit}];
  }
  template <typename Other>
  void Do(NodeId, const UnitId&, const Other&) {}

  void Report(NodeId node, const UnitId& unit, UnitReport::Kind kind, MoveId move) {
    Send(node, {}, unit, UnitReport{.unit = unit, .kind = kind, .move = move, .message = ""});
  }

  std::pair<NodeId, UnitId> Anywhere() {
    auto entry = units_.begin();
    std::advance(entry, random_() % units_.size());
    return entry->first;
  }
  void NodeTick() {
    const auto [node, unit] = Anywhere();
    if (dead_.contains(node)) return;
    On(node, unit, embla::NodeTick{});
    const UnitDurable& durable = StateOf(node, unit).durable;
    if (durable.import.has_value() || durable.released.has_value()) {
      Report(node, unit, UnitReport::Kind::kReadRecord, {});
    }
    if (is_settling_ || (has_faults_ && random_() % 8 == 0)) On(node, unit, FreezeDeadline{});
  }
  void Update() {
    const auto [node, unit] = Anywhere();
    if (held_.contains(node)) return;
    const UpdateSeq seq{++seq_};
    On(node, unit,
       UnitUpdate{.session = SessionId{1},
                  .seq = seq,
                  .first_incomplete = seq,
                  .epoch = {},
                  .chunks = {static_cast<std::uint32_t>(random_() % kChunks)}});
  }
  void RestartNode() {
    const auto [node, unit] = Anywhere();
    for (auto& [at, state] : units_) {
      if (at.first != node) continue;
      state = Recovered(state.durable, {}, kChunks);
      state.is_covered = Owns(state);
    }
  }

  std::mt19937 random_;
  CoordinatorHarness c_;
  std::map<NodeId, std::string> names_;
  std::set<NodeId> dead_;
  std::map<std::pair<NodeId, UnitId>, UnitState> units_;
  // By node and unit: the device that has it, and the one where there is room for it.
  std::map<std::pair<NodeId, UnitId>, std::uint32_t> devices_;
  std::map<std::pair<NodeId, UnitId>, std::uint32_t> targets_;
  std::vector<Message> messages_;
  bool has_faults_ = true;
  bool refuses_ = false;
  bool is_settling_ = false;
  std::uint64_t seq_ = 0;
  std::map<NodeId, std::uint64_t> boots_;  // Ids of processes.
  std::set<NodeId> held_;                  // Nodes whose process answers only the coordinator yet.
  std::map<UnitId, UnitDurable> copy_;     // A directory.
};

}  // namespace embla
