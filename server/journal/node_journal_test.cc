// A node that is killed at random places of its log and started again has the rows, the optimizer
// state and the record of updates of a node that lived on, also when its devices are GPUs and the
// other's are not: random tables of all sharding types, optimizers and number formats, ZCH tables
// and replica groups, updates of several sessions that overlap, tables and hyper-parameters that
// come and change, and snapshots at any of these moments, with some of them between image and rows.
// Tables ask for levels of durability of their own, and an acknowledged update survives what the
// highest of its tables' levels names. Both nodes tell the same of evicted rows.
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/migration/session_set.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing::node_journal_test {
namespace {

using ::testing::HasSubstr;

constexpr NodeId kSelf{1};

struct Operation {
  UpdateBatch header;
  std::vector<UpdatePartData> parts;
};

// An update that somebody waits for.
class Sent {
 public:
  Sent(ShardNode& node, const Operation& operation) {
    UpdateBatch request = Pack(operation.header, operation.parts);
    node.Update(std::move(request), absl::InfiniteFuture(),
                [this](const absl::StatusOr<UpdateResult>& result) {
                  const MutexLock lock(mu_);
                  result_ = result;
                  changed_.NotifyAll();
                });
  }
  absl::StatusOr<UpdateResult> Wait() {
    const MutexLock lock(mu_);
    while (!result_.has_value()) changed_.Wait(mu_);
    return *result_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::StatusOr<UpdateResult>> result_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<UpdateResult> SendAndWait(ShardNode& node, const Operation& operation) {
  return Sent(node, operation).Wait();
}

class Trial {
 public:
  explicit Trial(std::uint32_t seed) : random_(seed) {
    devices_ = Pick({1u, 2u, 4u});
    spec_.id = kSelf;
    spec_.name = "n0";
    spec_.address = "127.0.0.1:1";
    spec_.devices.resize(devices_, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 28});
    JournaledNode::Options options;
    options.node.name = spec_.name;
    options.node.devices = spec_.devices;
    options.node.threads_per_device = 1 + random_() % 2;
    options.journal.log.segment_bytes_max = 1 << 20;
    options.journal.level = Pick({Durability::kQueued, Durability::kWritten, Durability::kSynced});
    options.journal.snapshots.changes_share = Pick({0.5, 20.0});
    level_ = options.journal.level;
    model_ = *ShardNode::Create(options.node, pool_);
    if (seed % 2 == 0) GiveGpus(options.node);
    subject_ = std::make_unique<JournaledNode>(options);
  }

  void Run() {
    for (int round = 0; round < 6 && !::testing::Test::HasFailure(); ++round) {
      ChangeTables();
      Snapshot();
      AverageGroups();
      SweepIds();
      Snapshot();
      Train();
      CloseSession();
      Snapshot();
      if (random_() % 2 == 0) FinishSnapshot();
      Compare();
    }
    EXPECT_GT(subject_->journal().recovery().updates + kills_, 0u);
  }

  int kills() const { return kills_; }
  int snapshots() const { return snapshots_; }
  // Updates that were acknowledged when synced, and were there after a loss of power.
  int kept() const { return kept_; }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  void GiveGpus(ShardNodeOptions& node) {
    for (DeviceSpec& device : node.devices) {
      device.kind = DeviceKind::kGpu;
      gpus_.push_back(std::make_unique<gpu::SimulatedDevice>());
      node.gpus.push_back(gpus_.back().get());
    }
  }

  TableDurability RandomDurability() {
    return Pick({TableDurability::kNode, TableDurability::kQueued, TableDurability::kWritten,
                 TableDurability::kSynced});
  }

  TableSpec RandomSpec(std::uint32_t number) {
    TableSpec spec;
    spec.id = TableId{number};
    spec.name = "t" + std::to_string(number);
    spec.rows = Pick({7, 64, 300});
    spec.dim = Pick({1u, 4u, 8u, 12u, 33u});
    spec.dtype = Pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
    spec.rounding = Pick({Rounding::kNearest, Rounding::kStochastic});
    spec.bounds = Pick({BoundsMode::kError, BoundsMode::kIgnore});
    spec.seed = random_();
    spec.durability = RandomDurability();
    spec.optimizer.kind = kOptimizerKinds[random_() % kOptimizerKinds.size()];
    spec.optimizer.learning_rate = 0.05f;
    spec.optimizer.gradient_clip = Pick({0.0f, 0.5f});
    if (random_() % 3 == 0) {
      ZchSpec zch;
      zch.buckets = Pick({1u, 3u, 6u});
      zch.policy = Pick(
          {zch::Policy::kLru, zch::Policy::kLfu, zch::Policy::kDistanceLfu, zch::Policy::kTtl});
      if (zch.policy == zch::Policy::kTtl) zch.ttl_steps = Pick({5u, 20u});
      zch.admission = Pick({zch::Admission::kAll, zch::Admission::kCount});
      zch.admission_count = 2;
      spec.rows = zch.buckets * 64;
      zch.eviction_buffer_bytes = 1 << 24;
      spec.zch = zch;
    } else if (devices_ % 2 == 0 && random_() % 3 == 0) {
      spec.replica_groups = 2;
    }
    spec.SetDefaults();
    return spec;
  }

  void AddTable() {
    const TableSpec spec = RandomSpec(next_table_++);
    PlacementRequest request;
    request.min_partition = 4;
    request.sharding = spec.zch.has_value()
                           ? Pick({ShardingType::kTableWise, ShardingType::kRowWise})
                           : static_cast<ShardingType>(1 + random_() % 7);
    if (spec.replica_groups > 1) request.sharding = ShardingType::kRowWise;
    const absl::StatusOr<TablePlan> table = PlaceTable(spec, request, {spec_}, TableList(tables_));
    ASSERT_THAT(table, IsOk());
    tables_.push_back(*table);
  }

  // Tables come, change and go; the record of it may be the last one.
  void ChangeTables() {
    while (tables_.size() < 2 || (tables_.size() < 4 && random_() % 2 == 0)) AddTable();
    if (tables_.size() > 3 && random_() % 2 == 0) tables_.erase(tables_.begin());
    TableSpec& changed = tables_[random_() % tables_.size()].spec;
    changed.optimizer.learning_rate *= Pick({1.0f, 0.5f});
    if (random_() % 2 == 0) changed.durability = RandomDurability();
    version_ = Next(version_);
    const auto plan = std::make_shared<const Plan>(version_, "test", std::vector{spec_}, tables_);
    ASSERT_THAT(plan->Validate(), IsOk());
    // The model keeps nothing, and could not acknowledge what asks for more.
    std::vector<TablePlan> models = tables_;
    for (TablePlan& table : models) table.spec.durability = TableDurability::kNode;
    const auto models_plan =
        std::make_shared<const Plan>(version_, "test", std::vector{spec_}, std::move(models));
    ASSERT_THAT(model_->InstallPlan(models_plan, kSelf), IsOk());
    const bool dies = random_() % 4 == 0;
    if (dies) subject_->disk().FailAt(1 + random_() % 3, DiskFault::kDeath);
    const absl::Status tried = subject_->node().InstallPlan(plan, kSelf);
    ASSERT_TRUE(tried.ok() || dies) << tried;
    if (dies) Restart();
    const absl::Status installed = subject_->node().InstallPlan(plan, kSelf);
    ASSERT_THAT(installed, IsOk());
    if (random_() % 4 == 0) Restart();
  }

  // The disk may die under it, and its rows may be read much later.
  void Snapshot() {
    if (random_() % 2 == 0) return;
    FinishSnapshot();
    if (random_() % 3 == 0) return slow_snapshot_.Begin(subject_->journal());
    const bool dies = random_() % 4 == 0;
    if (dies) subject_->disk().FailAt(1 + random_() % 60, DiskFault::kDeath);
    const absl::Status taken = subject_->TakeSnapshot();
    ASSERT_TRUE(taken.ok() || dies) << taken;
    snapshots_ += taken.ok() ? 1 : 0;
    if (dies || random_() % 4 == 0) Restart();
  }

  void FinishSnapshot() {
    if (slow_snapshot_.is_under_way()) snapshots_ += slow_snapshot_.Finish().ok() ? 1 : 0;
  }

  static PlanVersion Next(PlanVersion version) { return PlanVersion{ToInt(version) + 1}; }

  void AverageGroups() {
    ShardNode::SyncQuery query;
    for (const TablePlan& table : tables_) {
      if (table.grouped()) query.tables.push_back(table.spec.id);
    }
    if (query.tables.empty() || random_() % 2 == 0) return;
    for (ShardNode* const node : {model_.get(), &subject_->node()}) {
      const auto synced = Await<SyncResult>(
          [&](const SyncDone& done) { node->Sync(query, absl::InfiniteFuture(), done); });
      ASSERT_THAT(synced, IsOk());
    }
    AwaitDurable();
    if (random_() % 2 == 0) Restart();
  }

  void SweepIds() {
    for (const TablePlan& table : tables_) {
      if (!table.spec.zch.has_value() || random_() % 2 == 0) continue;
      ShardNode::SweepQuery query;
      query.table = table.spec.id;
      const bool ttl = table.spec.zch->policy == zch::Policy::kTtl;
      query.sweep.rule =
          ttl && random_() % 2 == 0 ? ZchSweep::Rule::kExpired : ZchSweep::Rule::kIdle;
      query.sweep.step = step_;
      query.sweep.before_step = step_ - std::min<std::uint64_t>(step_, random_() % 30);
      query.rows = {{0, table.spec.rows}};
      std::vector<std::size_t> evicted;
      for (ShardNode* const node : {model_.get(), &subject_->node()}) {
        const auto swept = Await<SweepResult>(
            [&](const SweepDone& done) { node->SweepTable(query, absl::InfiniteFuture(), done); });
        ASSERT_THAT(swept, IsOk());
        EXPECT_THAT(swept->swept, ::testing::ElementsAre(RowInterval{0, table.spec.rows}));
        evicted.push_back(swept->evicted);
      }
      EXPECT_EQ(evicted[0], evicted[1]);
      AwaitDurable();
      if (random_() % 2 == 0) Restart();
    }
  }

  UpdatePartData RandomPart(const TablePlan& table, DType wire) {
    UpdatePartData data;
    data.part.table = table.spec.id;
    data.part.column_end = table.spec.dim;
    data.part.replica_group = random_() % table.spec.replica_groups;
    if (table.spec.zch.has_value() && table.spec.zch->policy == zch::Policy::kTtl) {
      data.part.ttl_steps = Pick({0u, 3u, 50u});
    }
    const auto random_id = [&] {
      return RowId{static_cast<std::int64_t>(
          random_() % (table.spec.zch.has_value() ? 3000 : table.spec.rows))};
    };
    if (wire == DType::kFloat32 && random_() % 4 == 0) return RandomImages(std::move(data), table);
    data.part.learning_rate = Pick({std::optional<float>(), std::optional(0.3f)});
    std::size_t rows = random_() % 30;
    if (random_() % 2 == 0) {
      data.part.form = UpdatePart::Form::kBags;
      data.part.pooling = Pick({Pooling::kSum, Pooling::kMean});
      for (std::size_t bag = 0; bag < rows; ++bag) {
        data.lengths.push_back(random_() % 4);
        for (std::uint32_t i = 0; i < data.lengths.back(); ++i) data.ids.push_back(random_id());
      }
      if (data.part.pooling == Pooling::kSum && random_() % 2 == 0) {
        data.weights.assign(data.ids.size(), 0.25f);
      }
    } else {
      for (std::size_t i = 0; i < rows; ++i) data.ids.push_back(random_id());
      if (table.spec.bounds == BoundsMode::kIgnore && !table.spec.zch.has_value()) {
        data.ids.push_back(RowId{-1});
        ++rows;
      }
    }
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    std::vector<float> gradients(rows * table.spec.dim);
    for (float& gradient : gradients) gradient = value(random_);
    data.gradients = EncodeRows(gradients, table.spec.dim, wire);
    return data;
  }

  UpdatePartData RandomImages(UpdatePartData data, const TablePlan& table) {
    const StateShape state = StateShapeOf(table.spec.optimizer);
    data.part.form = UpdatePart::Form::kImages;
    if (random_() % 2 == 0) {
      data.part.state_floats = state.row_floats + state.element_arrays * table.spec.dim;
    }
    data.part.state_only = data.part.state_floats > 0 && random_() % 3 == 0;
    std::set<std::int64_t> ids;
    for (std::size_t n = random_() % 20; n > 0; --n) {
      ids.insert(static_cast<std::int64_t>(random_() % table.spec.rows));
    }
    for (const std::int64_t id : ids) data.ids.push_back(RowId{id});
    std::uniform_real_distribution<float> value(0.0f, 1.0f);
    const auto floats = static_cast<std::uint32_t>(data.part.image_floats());
    std::vector<float> images(ids.size() * floats);
    for (float& number : images) number = value(random_);
    data.gradients = EncodeRows(images, floats, DType::kFloat32);
    return data;
  }

  SessionId AnySession() { return SessionId{closed_ + 1 + random_() % 3}; }

  Operation RandomOperation(SessionId session, std::map<SessionId, UpdateSeq>& first) {
    Operation operation;
    UpdateBatch& header = operation.header;
    header.plan_version = version_;
    header.session = session;
    header.seq = UpdateSeq{++seqs_[session]};
    header.first_incomplete = first.try_emplace(session, header.seq).first->second;
    header.step = ++step_;
    header.wire_dtype =
        Pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8Rowwise});
    for (const TablePlan& table : tables_) {
      if (!operation.parts.empty() && random_() % 2 == 0) continue;
      operation.parts.push_back(RandomPart(table, header.wire_dtype));
    }
    return operation;
  }

  // Updates of one session, since a node takes those of several in turns, which the model does not
  // know. They overlap, and some come twice, until the disk dies, or not.
  void Train() {
    std::vector<Operation> operations;
    std::map<SessionId, UpdateSeq> first;
    const SessionId session = AnySession();
    for (int i = 0; i < 30; ++i) operations.push_back(RandomOperation(session, first));
    const bool dies = random_() % 4 != 0;
    if (dies) subject_->disk().FailAt(1 + random_() % 20, DiskFault::kDeath);
    std::vector<std::unique_ptr<Sent>> sent, repeated;
    std::thread snapshot;
    if (!slow_snapshot_.is_under_way() && random_() % 2 == 0) {
      snapshot = std::thread([this] { snapshots_ += subject_->TakeSnapshot().ok() ? 1 : 0; });
    }
    for (const Operation& operation : operations) {
      sent.push_back(std::make_unique<Sent>(subject_->node(), operation));
      if (random_() % 4 == 0) {
        repeated.push_back(std::make_unique<Sent>(subject_->node(), operation));
      } else {
        repeated.push_back(nullptr);
      }
      if (random_() % 4 == 0) static_cast<void>(sent[random_() % sent.size()]->Wait());
    }
    std::vector<bool> acknowledged;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      bool ok = sent[i]->Wait().ok();
      // The answer to a repetition promises the same.
      if (repeated[i] != nullptr) ok = repeated[i]->Wait().ok() || ok;
      acknowledged.push_back(ok);
    }
    if (snapshot.joinable()) snapshot.join();
    const Durability survives = dies ? Restart() : Durability::kNone;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto again = SendAndWait(subject_->node(), operations[i]);
      ASSERT_THAT(again, IsOk());
      const bool lasts = acknowledged[i] && LevelOf(operations[i]) >= survives;
      ASSERT_TRUE(again->duplicate || !lasts) << "operation " << i << " was lost";
      kept_ += lasts && survives == Durability::kSynced ? 1 : 0;
      ASSERT_THAT(SendAndWait(*model_, operations[i]), IsOk());
    }
    AwaitDurable();
    if (random_() % 2 == 0) Restart();
  }

  // The level at which an update is acknowledged.
  Durability LevelOf(const Operation& operation) const {
    Durability level = Durability::kNone;
    for (const UpdatePartData& part : operation.parts) {
      const auto table = std::ranges::find(tables_, part.part.table,
                                           [](const TablePlan& plan) { return plan.spec.id; });
      const bool is_own = table->spec.durability != TableDurability::kNode;
      level = std::max(
          level, is_own ? Durability{static_cast<std::uint8_t>(table->spec.durability)} : level_);
    }
    return level;
  }

  // Updates that were acknowledged below kSynced outlive any end from here on.
  void AwaitDurable() {
    std::promise<absl::Status> synced;
    const auto tell = [&synced](const absl::Status& status) { synced.set_value(status); };
    ASSERT_THAT(subject_->journal().Append(DecidedBefore(), Durability::kSynced, tell), IsOk());
    ASSERT_THAT(synced.get_future().get(), IsOk());
  }

  // The oldest one, for good: also by the processes that come.
  void CloseSession() {
    if (random_() % 2 == 0) return;
    ClosedSessions closed;
    closed.refused.Insert(SessionId{++closed_});
    closed.settled = closed.refused;
    ASSERT_THAT(model_->CloseSessions(closed), IsOk());
    const bool dies = random_() % 4 == 0;
    if (dies) subject_->disk().FailAt(1 + random_() % 2, DiskFault::kDeath);
    const absl::Status tried = subject_->node().CloseSessions(closed);
    ASSERT_TRUE(tried.ok() || dies) << tried;
    if (dies) Restart();
    ASSERT_THAT(subject_->node().CloseSessions(closed), IsOk());
    if (random_() % 2 == 0) Restart();
    std::map<SessionId, UpdateSeq> first;
    Operation late = RandomOperation(AnySession(), first);
    late.header.session = SessionId{closed_};
    const absl::Status refused = SendAndWait(subject_->node(), late).status();
    ASSERT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  }

  // Returns the lowest level whose acknowledged updates are still there.
  Durability Restart() {
    FinishSnapshot();
    if (random_() % 4 == 0) {
      subject_->Stop();
      subject_->disk().Restart();
    } else {
      subject_->Kill();
    }
    const bool loses_power = random_() % 2 == 0;
    if (loses_power) subject_->disk().LosePower(power_);
    subject_->Start();
    ++kills_;
    return loses_power ? Durability::kSynced : Durability::kWritten;
  }

  static UnitWindows WindowsOf(ShardNode& node, TableId table) {
    UnitWindows windows;
    RunInOrder(node.units(), table, [&] { windows = node.units().WindowsOf({table, 0, 0}); });
    return windows;
  }

  void Compare() {
    for (const TablePlan& table : tables_) {
      SCOPED_TRACE(table.spec.name + " " + std::string(NameOf(table.sharding)) + " " +
                   std::string(NameOf(table.spec.optimizer.kind)));
      EXPECT_EQ(WindowsOf(*model_, table.spec.id), WindowsOf(subject_->node(), table.spec.id));
      for (std::uint32_t group = 0; group < table.spec.replica_groups; ++group) {
        EXPECT_EQ(*ReadNodeRows(*model_, table.spec, group),
                  *ReadNodeRows(subject_->node(), table.spec, group));
      }
      if (table.spec.zch.has_value()) CompareEvictions(table.spec);
    }
  }

  // Rows that ids have lost, with their state, by id and step.
  using Evicted = std::map<std::pair<std::int64_t, std::uint64_t>, std::string>;
  static Evicted EvictedOf(ShardNode& node, const TableSpec& spec) {
    Evicted all;
    EvictionLog& log = **node.Evictions(spec.id);
    EvictionLog::Piece piece = log.Read(0);
    for (; piece.rows != nullptr; piece = log.Read(piece.next)) {
      const absl::StatusOr<RowBlock> block = DecodeRowBlock(piece.rows->row_block.bytes());
      EMBLA_CHECK(block.ok());
      const std::size_t row_bytes = RowBytes(block->shape.dtype, block->shape.columns());
      const std::size_t floats = block->shape.state_floats;
      for (std::size_t i = 0; i < block->rows.size(); ++i) {
        const zch::Eviction& eviction = piece.rows->evictions[i];
        std::string& row = all[{ToInt(eviction.id), eviction.step}];
        row.append(reinterpret_cast<const char*>(block->weights.data()) + i * row_bytes, row_bytes);
        row.append(reinterpret_cast<const char*>(block->state.data() + i * floats), floats * 4);
      }
    }
    return all;
  }
  // The subject knows those since its start.
  void CompareEvictions(const TableSpec& spec) {
    const Evicted known = EvictedOf(*model_, spec);
    for (const auto& [eviction, row] : EvictedOf(subject_->node(), spec)) {
      const auto it = known.find(eviction);
      ASSERT_NE(it, known.end()) << "id " << eviction.first << " at step " << eviction.second;
      EXPECT_TRUE(it->second == row) << "id " << eviction.first << " at step " << eviction.second;
    }
  }

  std::mt19937 random_;
  std::mt19937_64 power_{7};
  std::uint32_t devices_ = 1;
  NodeSpec spec_;
  Durability level_ = Durability::kWritten;
  BufferPool pool_;
  std::unique_ptr<ShardNode> model_;
  std::vector<std::unique_ptr<gpu::SimulatedDevice>> gpus_;  // The subject's.
  std::unique_ptr<JournaledNode> subject_;
  SlowSnapshot slow_snapshot_;  // The subject's.
  std::vector<TablePlan> tables_;
  std::uint32_t next_table_ = 1;
  PlanVersion version_{};
  std::map<SessionId, std::uint64_t> seqs_;
  std::uint64_t step_ = 0;
  std::uint64_t closed_ = 0;  // Sessions up to this one.
  int kills_ = 0;
  int snapshots_ = 0;
  int kept_ = 0;
};

TEST(NodeJournal, AKilledNodeGoesOnWithTheBitsOfOneThatLived) {
  const std::vector<std::uint32_t> seeds = TestSeeds(40);
  int kills = 0;
  int snapshots = 0;
  int kept = 0;
  for (const std::uint32_t seed : seeds) {
    if (HasFailure()) break;
    SCOPED_TRACE(absl::StrCat("EMBLA_TEST_SEED=", seed));
    Trial trial(seed);
    trial.Run();
    kills += trial.kills();
    snapshots += trial.snapshots();
    kept += trial.kept();
  }
  EXPECT_GT(snapshots, 2 * static_cast<int>(seeds.size()));
  EXPECT_GT(kills, 2 * static_cast<int>(seeds.size()));
  EXPECT_GT(kept, static_cast<int>(seeds.size()));
}

}  // namespace
}  // namespace embla::testing::node_journal_test
