// A coordinator on a store in memory, with a clock, and nodes that answer when told to.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/cluster_key.h"
#include "core/base/status_macros.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"
#include "server/state_store/memory_state_store.h"

namespace embla {

// Fails every commit while told to.
class FailingStore final : public StateStore {
 public:
  void FailCommits(bool fail) { fail_ = fail; }

  absl::StatusOr<StateEntry> Get(std::string_view key) const override { return inner_->Get(key); }
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override {
    return inner_->List(prefix);
  }
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override {
    if (fail_) return absl::UnavailableError("the disk is gone");
    return inner_->Commit(compares, writes);
  }
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override {
    return inner_->Watch(prefix);
  }
  Revision revision() const override { return inner_->revision(); }
  // The store becomes what a copy of it had, as if its directory had been put back.
  void Restore(const std::vector<StateEntry>& copy) {
    inner_ = std::make_unique<MemoryStateStore>();
    Revision revision{};
    std::vector<StateWrite> writes;
    for (const StateEntry& entry : copy) {
      writes.push_back({entry.key, entry.value});
      revision = std::max(revision, entry.revision);
    }
    do {  // The copy's revision, too.
      ASSERT_THAT(inner_->Commit({}, writes), testing::IsOk());
    } while (inner_->revision() < revision);
  }

 private:
  std::unique_ptr<MemoryStateStore> inner_ = std::make_unique<MemoryStateStore>();
  bool fail_ = false;
};

// Plans a table as the call of an operator does.
inline absl::StatusOr<TablePlan> PlanTableOf(const Coordinator& coordinator, const TableSpec& spec,
                                             const PlacementRequest& request,
                                             const StatedTopology& topology) {
  EMBLA_ASSIGN_OR_RETURN(const PlacementQuestion question,
                         coordinator.AskPlacement(spec, request, topology));
  return PlanTable(question, nullptr);
}

class CoordinatorHarness {
 public:
  CoordinatorHarness() { Restart(); }

  Coordinator& operator*() { return *coordinator_; }
  Coordinator* operator->() { return coordinator_.get(); }
  FailingStore& store() { return store_; }
  absl::Time now() const { return now_; }
  void Advance(absl::Duration step) { now_ += step; }

  // A new coordinator on the same store. Effects that nobody took are gone, as in a crash.
  void Restart() {
    CoordinatorOptions options;
    options.new_cluster_id = "cluster-" + std::to_string(++starts_);
    options.key = key_;
    options.boot = starts_;
    auto opened = Coordinator::Open(store_, options, now_);
    ASSERT_THAT(opened, testing::IsOk());
    coordinator_ = *std::move(opened);
  }

  void RestoreStore(const std::vector<StateEntry>& copy) {
    coordinator_.reset();
    store_.Restore(copy);
    Restart();
  }

  static NodeRegistration Registration(const std::string& name, std::uint64_t boot_id = 1,
                                       std::uint32_t devices = 2) {
    return {.name = name,
            .address = name + ":7000",
            .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, 1 << 30}),
            .boot_id = boot_id,
            .cluster_id = "",
            .accept_loss = true};
  }

  NodeId Register(const std::string& name, std::uint64_t boot_id = 1) {
    const auto id = coordinator_->RegisterNode(Registration(name, boot_id), now_);
    EXPECT_THAT(id, testing::IsOk());
    return id.ok() ? *id : NodeId{};
  }

  // The node tells that it has the current plan.
  absl::Status Install(NodeId node, std::uint64_t boot_id = 1) {
    HeartbeatInfo info;
    info.plan_version = coordinator_->GetPlan()->version();
    return coordinator_->Heartbeat(node, boot_id, info, now_);
  }
  // The node is alive and has not got on.
  absl::Status Beat(NodeId node, std::uint64_t boot_id = 1) {
    return coordinator_->Heartbeat(node, boot_id, {}, now_);
  }

  static TableSpec Spec(const std::string& name, std::int64_t rows = 1000) {
    return {.name = name, .rows = rows, .dim = 16};
  }

  absl::StatusOr<ChangeId> Create(const std::string& name,
                                  ShardingType sharding = ShardingType::kRowWise) {
    return coordinator_->StartCreateTable(Spec(name), {.sharding = sharding}, {}, now_);
  }

  // Creates a table that every node in `nodes` installs at once.
  void CreateOn(const std::string& name, const std::vector<NodeId>& nodes,
                const PlacementRequest& request = {.sharding = ShardingType::kRowWise}) {
    ASSERT_THAT(coordinator_->StartCreateTable(Spec(name), request, {}, now_), testing::IsOk());
    for (const NodeId node : nodes) ASSERT_THAT(Install(node), testing::IsOk());
    ASSERT_NE(Outcomes().size(), 0u);
  }

  // The outcomes among the effects; publications are counted.
  std::map<ChangeId, CompleteChange> Outcomes() {
    std::map<ChangeId, CompleteChange> outcomes;
    for (Effect& effect : coordinator_->TakeEffects()) {
      if (auto* const change = std::get_if<CompleteChange>(&effect)) {
        EXPECT_TRUE(outcomes.emplace(change->id, *change).second) << "completed twice";
      } else if (auto* const publish = std::get_if<PublishPlan>(&effect)) {
        published_ = publish->plan;
      }
    }
    return outcomes;
  }
  // The last plan among all effects taken so far.
  PlanPtr published() {
    static_cast<void>(Outcomes());
    return published_;
  }

 private:
  FailingStore store_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  const std::shared_ptr<const ClusterKey> key_ =
      std::make_shared<const ClusterKey>(ClusterKey::Generate());
  std::uint32_t starts_ = 0;
  std::unique_ptr<Coordinator> coordinator_;
  PlanPtr published_;
};

}  // namespace embla
