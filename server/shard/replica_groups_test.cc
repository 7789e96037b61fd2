// Replica groups on one node: who is updated, what averaging makes of weights and state, and when
// it happens by itself. The reference is arithmetic in double over what was there before.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/metrics.h"
#include "core/metrics/names.h"
#include "core/plan/names.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/convert.h"
#include "server/shard/testing/local_cluster.h"
#include "server/table/element.h"

namespace embla::testing {
namespace {

using ::testing::HasSubstr;

constexpr TableId kTable{1};

// All of one group's copy: weights as fp32, and per row the scalars, then the arrays of dim.
struct Copy {
  std::vector<float> weights;
  std::vector<float> state;

  bool SameBits(const Copy& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    };
    return same(weights, other.weights) && same(state, other.state);
  }
};

TableSpec MakeSpec(OptimizerKind optimizer, DType dtype, std::uint32_t groups) {
  TableSpec spec;
  spec.id = kTable;
  spec.name = "t";
  spec.rows = 50;
  spec.dim = 12;
  spec.dtype = dtype;
  spec.optimizer.kind = optimizer;
  spec.optimizer.learning_rate = 0.1f;
  spec.seed = 7;
  spec.replica_groups = groups;
  spec.SetDefaults();
  return spec;
}

class ReplicaGroupsTest : public ::testing::Test {
 protected:
  void Start(const TableSpec& spec, std::uint32_t devices,
             ShardingType sharding = ShardingType::kRowWise, LocalCluster::Options options = {}) {
    spec_ = spec;
    options.devices_per_node = devices;
    cluster_ = std::make_unique<LocalCluster>(options);
    absl::StatusOr<TablePlan> table =
        PlaceTable(spec, {.sharding = sharding, .min_partition = 4}, cluster_->specs(), {});
    ASSERT_THAT(table, IsOk());
    ASSERT_THAT(cluster_->Install({*table}), IsOk());
  }

  ShardNode& node() { return cluster_->node(0u); }

  // Gradients of `ids` from `random`; one session per group.
  absl::StatusOr<UpdateResult> Update(std::uint32_t group, const std::vector<RowId>& ids,
                                      std::mt19937& random, std::uint64_t seq) {
    std::normal_distribution<float> normal;
    std::vector<float> gradients(ids.size() * spec_.dim);
    for (float& value : gradients) value = normal(random);
    UpdateBatch header;
    header.session = SessionId{group + 1};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{seq};
    header.step = seq;
    UpdatePartData part;
    part.part.table = kTable;
    part.part.replica_group = group;
    part.part.column_end = spec_.dim;
    part.ids = ids;
    part.gradients = EncodeRows(gradients, spec_.dim, DType::kFloat32);
    return cluster_->Update(NodeId{1}, Pack(header, {part}));
  }

  std::vector<RowId> RandomIds(std::mt19937& random) const {
    std::vector<RowId> ids(20);
    for (RowId& id : ids) id = RowId{static_cast<std::int64_t>(random() % spec_.rows)};
    return ids;
  }

  absl::StatusOr<SyncResult> Sync(std::vector<TableId> tables = {kTable}) {
    return Await<SyncResult>([&](SyncDone done) {
      node().Sync({std::move(tables), PlanVersion{1}}, absl::Now() + absl::Minutes(1),
                  std::move(done));
    });
  }

  Copy Read(std::uint32_t group) {
    const StateShape shape = StateShapeOf(spec_.optimizer);
    const std::size_t floats = shape.row_floats + std::size_t{shape.element_arrays} * spec_.dim;
    Copy copy{std::vector<float>(spec_.rows * spec_.dim), std::vector<float>(spec_.rows * floats)};
    ShardNode::RowsQuery query{kTable, 0, spec_.rows, {}, /*with_state=*/true, group};
    std::size_t cells = 0;
    const absl::Status status = node().ReadRows(query, [&](Buffer buffer) {
      const RowBlock block = *DecodeRowBlock(buffer.bytes());
      for (std::size_t i = 0; i < block.rows.size(); ++i) Place(block, i, floats, copy);
      cells += block.rows.size() * block.shape.columns();
      return absl::OkStatus();
    });
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(cells, copy.weights.size());
    return copy;
  }

  void Place(const RowBlock& block, std::size_t i, std::size_t floats, Copy& copy) const {
    const StateShape shape = StateShapeOf(spec_.optimizer);
    const std::int64_t row = ToInt(block.rows[i]);
    const std::uint32_t begin = block.shape.column_begin, columns = block.shape.columns();
    const std::size_t row_bytes = RowBytes(spec_.dtype, columns);
    kernels::Convert({block.weights.data() + i * row_bytes, row_bytes, ElementOf(spec_.dtype)},
                     {&copy.weights[row * spec_.dim + begin], columns * sizeof(float)}, 1, columns);
    if (floats == 0) return;
    const float* from = &block.state[i * block.shape.state_floats];
    float* const to = &copy.state[row * floats];
    from = std::copy_n(from, shape.row_floats, to) - to + from;
    for (std::uint32_t a = 0; a < shape.element_arrays; ++a, from += columns) {
      std::copy_n(from, columns, to + shape.row_floats + a * spec_.dim + begin);
    }
  }

  std::vector<Copy> ReadAll() {
    std::vector<Copy> copies;
    for (std::uint32_t g = 0; g < spec_.replica_groups; ++g) copies.push_back(Read(g));
    return copies;
  }

  TableSpec spec_;
  std::unique_ptr<LocalCluster> cluster_;
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Cut {
  ShardingType sharding;
  std::uint32_t groups;
  std::uint32_t devices;
};
constexpr Cut kCuts[] = {{ShardingType::kTableWise, 2, 2},
                         {ShardingType::kRowWise, 3, 6},
                         {ShardingType::kColumnWise, 2, 6},
                         {ShardingType::kGridShard, 5, 10}};

// The groups are trained with the same inputs and averaged after each step: they stay equal bit
// for bit, and equal to a table without groups.
TEST_F(ReplicaGroupsTest, SyncEveryStepOnEqualInputsIsTrainingWithoutGroups) {
  for (const OptimizerKind optimizer : kOptimizerKinds) {
    for (const DType dtype : kDTypes) {
      for (const Cut& cut : kCuts) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(optimizer)), " ", std::string(NameOf(dtype)),
                                  " in ", cut.groups, " groups"));
        TableSpec spec = MakeSpec(optimizer, dtype, cut.groups);
        spec.rounding = dtype == DType::kFloat16 ? Rounding::kNearest : Rounding::kStochastic;
        Start(spec, cut.devices, cut.sharding);
        for (std::uint32_t step = 1; step <= 4; ++step) {
          for (std::uint32_t group = 0; group < cut.groups; ++group) {
            std::mt19937 random(step);
            ASSERT_THAT(Update(group, RandomIds(random), random, step), IsOk());
          }
          const absl::StatusOr<SyncResult> synced = Sync();
          ASSERT_THAT(synced, IsOk());
          ASSERT_EQ(synced->tables.size(), 1u);
          ASSERT_EQ(synced->tables[0].values, 50u * 12u * cut.groups);
          ASSERT_EQ(synced->tables[0].divergence_max, 0.0);
        }
        const std::vector<Copy> copies = ReadAll();
        TableSpec alone = spec;
        alone.replica_groups = 1;
        Start(alone, 2);
        for (std::uint32_t step = 1; step <= 4; ++step) {
          std::mt19937 random(step);
          ASSERT_THAT(Update(0, RandomIds(random), random, step), IsOk());
        }
        const Copy reference = Read(0);
        for (const Copy& copy : copies) EXPECT_TRUE(copy.SameBits(reference));
      }
    }
  }
}

// Rounding of the mean to the table's format, relative to the largest of what was averaged.
double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-22;
  }
}

void ExpectMean(const std::vector<Copy>& before, std::vector<float> Copy::*values, std::size_t i,
                double tolerance, float after) {
  double sum = 0.0, largest = 0.0;
  for (const Copy& copy : before) {
    sum += (copy.*values)[i];
    largest = std::max(largest, std::abs(double{(copy.*values)[i]}));
  }
  EXPECT_NEAR(after, sum / static_cast<double>(before.size()), largest * tolerance) << i;
}

TEST_F(ReplicaGroupsTest, SyncMakesEveryCopyTheMeanOfWhatTheyWere) {
  std::mt19937 random(3);
  for (const OptimizerKind optimizer : kOptimizerKinds) {
    for (const DType dtype : kDTypes) {
      for (const Cut& cut : kCuts) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(optimizer)), " ", std::string(NameOf(dtype)),
                                  " in ", cut.groups, " groups"));
        Start(MakeSpec(optimizer, dtype, cut.groups), cut.devices, cut.sharding);
        for (std::uint32_t group = 0; group < cut.groups; ++group) {
          for (std::uint32_t seq = 1; seq <= group + 2; ++seq) {
            ASSERT_THAT(Update(group, RandomIds(random), random, seq), IsOk());
          }
        }
        const std::vector<Copy> before = ReadAll();
        const absl::StatusOr<SyncResult> synced = Sync();
        ASSERT_THAT(synced, IsOk());
        EXPECT_GT(synced->tables[0].divergence_max, 0.0);
        EXPECT_GT(synced->tables[0].squares, 0.0);
        const std::vector<Copy> after = ReadAll();
        for (const Copy& copy : after) ASSERT_TRUE(copy.SameBits(after[0]));
        for (std::size_t i = 0; i < after[0].weights.size(); ++i) {
          ExpectMean(before, &Copy::weights, i, Tolerance(dtype), after[0].weights[i]);
        }
        const StateShape shape = StateShapeOf(spec_.optimizer);
        const std::size_t floats = shape.row_floats + shape.element_arrays * spec_.dim;
        for (std::size_t i = 0; i < after[0].state.size(); ++i) {
          if (i % floats >= shape.row_counters) {
            ExpectMean(before, &Copy::state, i, 0x1p-22, after[0].state[i]);
            continue;
          }
          float steps = 0.0f;
          for (const Copy& copy : before) steps = std::max(steps, copy.state[i]);
          EXPECT_EQ(after[0].state[i], steps);
        }
        // Nothing is left to be averaged.
        EXPECT_EQ(Sync()->tables[0].divergence_max, 0.0);
        EXPECT_TRUE(Read(cut.groups - 1).SameBits(after[0]));
      }
    }
  }
}

TEST_F(ReplicaGroupsTest, TablesOfManyChunksAndOfFewerRowsThanGroupsAreAveraged) {
  std::mt19937 random(4);
  for (const std::int64_t rows : {1, 2, 20'000}) {
    TableSpec spec = MakeSpec(OptimizerKind::kAdam, DType::kFloat32, 3);
    spec.rows = rows;
    spec.row_granules = 0;
    spec.SetDefaults();
    Start(spec, 3, ShardingType::kTableWise);
    for (std::uint32_t group = 0; group < 3; ++group) {
      ASSERT_THAT(Update(group, {RowId{0}, RowId{rows / 2}, RowId{rows - 1}}, random, 1), IsOk());
    }
    const std::vector<Copy> before = ReadAll();
    ASSERT_THAT(Sync(), IsOk());
    const std::vector<Copy> after = ReadAll();
    EXPECT_TRUE(after[1].SameBits(after[0]) && after[2].SameBits(after[0])) << rows;
    for (std::size_t i = 0; i < after[0].weights.size(); ++i) {
      ExpectMean(before, &Copy::weights, i, 0x1p-22, after[0].weights[i]);
    }
  }
}

// Nodes of simulated GPUs whose kernels read each other's memory, that go through the host's, and
// that have rows in use only.
std::vector<LocalCluster::Options> GpuNodes() {
  LocalCluster::Options options;
  options.is_gpu = [](std::uint32_t, std::uint32_t) { return true; };
  std::vector<LocalCluster::Options> all(3, options);
  all[0].collectives = all[2].collectives = Collectives::kPeer;
  all[2].gpu_cache_bytes = std::size_t{1} << 29;
  return all;
}

TEST_F(ReplicaGroupsTest, GpusAverageToTheBitsOfCpus) {
  for (const OptimizerKind optimizer : kOptimizerKinds) {
    for (const DType dtype : kDTypes) {
      for (const Cut& cut : kCuts) {
        SCOPED_TRACE(absl::StrCat(std::string(NameOf(optimizer)), " ", std::string(NameOf(dtype)),
                                  " in ", cut.groups, " groups"));
        std::vector<LocalCluster::Options> kinds = GpuNodes();
        kinds.insert(kinds.begin(), LocalCluster::Options());
        std::vector<Copy> want;
        TableSync report;
        for (const LocalCluster::Options& kind : kinds) {
          Start(MakeSpec(optimizer, dtype, cut.groups), cut.devices, cut.sharding, kind);
          std::mt19937 random(6);
          for (std::uint32_t group = 0; group < cut.groups; ++group) {
            for (std::uint32_t seq = 1; seq <= group + 1; ++seq) {
              ASSERT_THAT(Update(group, RandomIds(random), random, seq), IsOk());
            }
          }
          const absl::StatusOr<SyncResult> synced = Sync();
          ASSERT_THAT(synced, IsOk());
          const std::vector<Copy> copies = ReadAll();
          if (want.empty()) {
            want = copies;
            report = synced->tables[0];
          }
          for (const Copy& copy : copies) ASSERT_TRUE(copy.SameBits(want[0]));
          EXPECT_EQ(synced->tables[0].values, report.values);
          EXPECT_EQ(synced->tables[0].divergence_max, report.divergence_max);
          EXPECT_NEAR(synced->tables[0].squares, report.squares, 1e-12 * report.squares);
        }
      }
    }
  }
}

TEST_F(ReplicaGroupsTest, RowsOfGpusThatMeetDoNotTravelThroughTheHost) {
  for (const bool meets : {true, false}) {
    Metrics metrics;
    LocalCluster::Options options = GpuNodes()[meets ? 0 : 1];
    options.metrics = &metrics;
    TableSpec spec = MakeSpec(OptimizerKind::kAdam, DType::kFloat32, 2);
    spec.rows = 20'000;  // Several chunks.
    spec.row_granules = 0;
    spec.SetDefaults();
    Start(spec, 2, ShardingType::kTableWise, options);
    std::mt19937 random(7);
    ASSERT_THAT(Update(1, RandomIds(random), random, 1), IsOk());
    const Counter in = metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {"0", "in"});
    const double before = in.value();
    ASSERT_THAT(Sync(), IsOk());
    EXPECT_EQ(in.value() == before, meets);
    EXPECT_TRUE(Read(0).SameBits(Read(1)));
    cluster_.reset();
  }
}

// Wherever a GPU stops amid an averaging, the rows of the others are what they were, or the mean.
TEST_F(ReplicaGroupsTest, AGpuThatStopsAmidAnAveragingLeavesNoHalfOfIt) {
  const LocalCluster::Options options = GpuNodes().front();
  std::optional<Copy> mean;
  bool was_kept = false, was_averaged = false;
  for (const auto at : {gpu::SimulatedFault::At::kQueue, gpu::SimulatedFault::At::kSynchronize}) {
    for (std::uint32_t skip = 0;; ++skip) {
      Start(MakeSpec(OptimizerKind::kAdam, DType::kFloat32, 2), 2, ShardingType::kTableWise,
            options);
      std::mt19937 random(8);
      for (std::uint32_t group = 0; group < 2; ++group) {
        ASSERT_THAT(Update(group, RandomIds(random), random, 1), IsOk());
      }
      const Copy before = Read(0);
      if (!mean.has_value()) {
        ASSERT_THAT(Sync(), IsOk());
        mean = Read(0);
        skip = static_cast<std::uint32_t>(-1);
        continue;
      }
      cluster_->gpu(0, 1)->Inject({.at = at, .skip = skip});
      const absl::Status synced = Sync().status();
      const Copy after = Read(0);
      was_kept = was_kept || after.SameBits(before);
      was_averaged = was_averaged || (!synced.ok() && after.SameBits(*mean));
      EXPECT_TRUE(after.SameBits(before) || after.SameBits(*mean)) << "after " << skip;
      EXPECT_EQ(synced.ok(), cluster_->gpu(0, 1)->health().ok()) << synced;
      if (synced.ok()) break;
    }
  }
  EXPECT_TRUE(was_kept && was_averaged);
}

TEST_F(ReplicaGroupsTest, AnUpdateTouchesItsGroupOnly) {
  std::mt19937 random(5);
  Start(MakeSpec(OptimizerKind::kAdam, DType::kFloat32, 2), 4);
  const Copy initial = Read(0);
  EXPECT_TRUE(Read(1).SameBits(initial));
  ASSERT_THAT(Update(0, RandomIds(random), random, 1), IsOk());
  EXPECT_TRUE(Read(1).SameBits(initial));
  const Copy trained = Read(0);
  EXPECT_FALSE(trained.SameBits(initial));
  ASSERT_THAT(Update(1, RandomIds(random), random, 1), IsOk());
  EXPECT_TRUE(Read(0).SameBits(trained));
}

TEST_F(ReplicaGroupsTest, OneRequestMayTouchSeveralGroups) {
  Start(MakeSpec(OptimizerKind::kAdam, DType::kFloat32, 2), 4);
  const Copy initial = Read(0);
  UpdateBatch header;
  header.session = SessionId{1};
  header.seq = UpdateSeq{1};
  std::vector<UpdatePartData> parts(2);
  for (std::uint32_t group = 0; group < 2; ++group) {
    UpdatePartData& part = parts[group];
    part.part.table = kTable;
    part.part.replica_group = group;
    part.part.column_end = spec_.dim;
    part.ids = {RowId{3}, RowId{40}};
    part.gradients =
        EncodeRows(std::vector<float>(2 * spec_.dim, 0.5f), spec_.dim, DType::kFloat32);
  }
  ASSERT_THAT(cluster_->Update(NodeId{1}, Pack(header, parts)), IsOk());
  EXPECT_TRUE(Read(0).SameBits(Read(1)));
  EXPECT_FALSE(Read(0).SameBits(initial));
}

TEST_F(ReplicaGroupsTest, ALookupReadsItsGroup) {
  std::mt19937 random(6);
  Start(MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 2), 4);
  ASSERT_THAT(Update(1, RandomIds(random), random, 1), IsOk());
  for (std::uint32_t group = 0; group < 2; ++group) {
    const Copy copy = Read(group);
    for (const Pooling pooling : {Pooling::kNone, Pooling::kSum}) {
      LookupPartData part;
      part.part.table = kTable;
      part.part.replica_group = group;
      part.part.pooling = pooling;
      part.part.column_end = spec_.dim;
      for (std::int64_t row = 0; row < spec_.rows; ++row) part.ids.push_back(RowId{row});
      if (pooling == Pooling::kSum) part.lengths.assign(part.ids.size(), 1);
      absl::StatusOr<LookupResult> result = cluster_->Lookup(NodeId{1}, Pack({}, {part}));
      ASSERT_THAT(result, IsOk());
      const auto* const rows = reinterpret_cast<const float*>(result->rows.data());
      for (std::size_t i = 0; i < copy.weights.size(); ++i) ASSERT_EQ(rows[i], copy.weights[i]);
    }
  }
}

TEST_F(ReplicaGroupsTest, AreAveragedWhenEveryGroupHasAppliedTheSteps) {
  std::mt19937 random(8);
  TableSpec spec = MakeSpec(OptimizerKind::kAdagrad, DType::kFloat32, 2);
  spec.sync_every_steps = 3;
  Start(spec, 4);
  const auto equal = [this] { return Read(0).SameBits(Read(1)); };
  std::uint64_t seq = 0;
  for (int round = 0; round < 3; ++round) {
    for (int step = 1; step <= 3; ++step) {
      ++seq;
      ASSERT_THAT(Update(0, RandomIds(random), random, seq), IsOk());
      EXPECT_FALSE(equal());
      ASSERT_THAT(Update(1, RandomIds(random), random, seq), IsOk());
      EXPECT_EQ(equal(), step == 3);
    }
  }
}

TEST_F(ReplicaGroupsTest, ARepeatedUpdateIsNoStepAndAskingForItBeginsAgain) {
  std::mt19937 random(9);
  TableSpec spec = MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 2);
  spec.sync_every_steps = 2;
  Start(spec, 2);
  for (std::uint32_t group = 0; group < 2; ++group) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      ASSERT_THAT(Update(group, RandomIds(random), random, 1), IsOk());
    }
  }
  EXPECT_FALSE(Read(0).SameBits(Read(1)));
  ASSERT_THAT(Sync(), IsOk());
  EXPECT_TRUE(Read(0).SameBits(Read(1)));
  for (std::uint32_t group = 0; group < 2; ++group) {
    ASSERT_THAT(Update(group, RandomIds(random), random, 2), IsOk());
  }
  EXPECT_FALSE(Read(0).SameBits(Read(1)));
  for (std::uint32_t group = 0; group < 2; ++group) {
    ASSERT_THAT(Update(group, RandomIds(random), random, 3), IsOk());
  }
  EXPECT_TRUE(Read(0).SameBits(Read(1)));
}

TEST_F(ReplicaGroupsTest, UnknownGroupsAndTablesAreErrors) {
  std::mt19937 random(10);
  Start(MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 2), 2);
  const absl::Status update = Update(2, {RowId{0}}, random, 1).status();
  EXPECT_EQ(update.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(update.message()), HasSubstr("table t has replica groups 0 to 1, not 2"));
  LookupPartData part;
  part.part.table = kTable;
  part.part.replica_group = 9;
  part.part.column_end = spec_.dim;
  part.ids = {RowId{0}};
  EXPECT_EQ(cluster_->Lookup(NodeId{1}, Pack({}, {part})).status().code(),
            absl::StatusCode::kInvalidArgument);
  const ShardNode::RowsQuery query{kTable, 0, 1, {}, false, 2};
  EXPECT_EQ(node().ReadRows(query, [](Buffer) { return absl::OkStatus(); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sync({TableId{9}}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ReplicaGroupsTest, TablesWithoutGroupsAreLeftAlone) {
  Start(MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 1), 2);
  const Copy before = Read(0);
  const absl::StatusOr<SyncResult> synced = Sync();
  ASSERT_THAT(synced, IsOk());
  EXPECT_EQ(synced->tables[0].replica_groups, 1u);
  EXPECT_EQ(synced->tables[0].values, 0u);
  EXPECT_TRUE(Read(0).SameBits(before));
}

TEST_F(ReplicaGroupsTest, AnExpiredSyncDoesNothing) {
  std::mt19937 random(11);
  Start(MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 2), 2);
  ASSERT_THAT(Update(0, RandomIds(random), random, 1), IsOk());
  const absl::StatusOr<SyncResult> late = Await<SyncResult>([&](SyncDone done) {
    node().Sync({{kTable}, PlanVersion{1}}, absl::InfinitePast(), std::move(done));
  });
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(Read(0).SameBits(Read(1)));
}

// Trainers of all groups, averaging by itself and on request, all at once: everything ends, and a
// last averaging leaves the groups equal.
TEST_F(ReplicaGroupsTest, TrainersOfAllGroupsAndSyncsRunAtOnce) {
  TableSpec spec = MakeSpec(OptimizerKind::kAdam, DType::kBFloat16, 3);
  spec.sync_every_steps = 1;
  Start(spec, 6, ShardingType::kGridShard);
  std::vector<std::thread> trainers;
  for (std::uint32_t group = 0; group < 3; ++group) {
    trainers.emplace_back([this, group] {
      std::mt19937 random(100 + group);
      for (std::uint64_t seq = 1; seq <= 60; ++seq) {
        EXPECT_THAT(Update(group, RandomIds(random), random, seq), IsOk());
        if (seq % 10 != 0) continue;
        EXPECT_THAT(Sync(), IsOk());
      }
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  ASSERT_THAT(Sync(), IsOk());
  const std::vector<Copy> copies = ReadAll();
  EXPECT_TRUE(copies[1].SameBits(copies[0]) && copies[2].SameBits(copies[0]));
}

// A node that ends while averaging is due: devices may have ended before it is queued.
TEST_F(ReplicaGroupsTest, ANodeEndsWhileUpdatesMakeSyncsDue) {
  std::mt19937 random(12);
  TableSpec spec = MakeSpec(OptimizerKind::kSgd, DType::kFloat32, 2);
  spec.sync_every_steps = 1;
  for (int round = 0; round < 30; ++round) {
    Start(spec, 2);
    std::vector<RowId> ids = RandomIds(random);
    for (std::uint32_t group = 0; group < 2; ++group) {
      UpdateBatch header;
      header.session = SessionId{group + 1};
      header.seq = UpdateSeq{1};
      UpdatePartData part;
      part.part.table = kTable;
      part.part.replica_group = group;
      part.part.column_end = spec_.dim;
      part.ids = ids;
      part.gradients =
          EncodeRows(std::vector<float>(ids.size() * spec_.dim), spec_.dim, DType::kFloat32);
      UpdateBatch packed = Pack(header, {part});
      node().Update(
          std::move(packed), absl::InfiniteFuture(),
          [](const absl::StatusOr<UpdateResult>& result) { EXPECT_THAT(result, IsOk()); });
    }
    cluster_.reset();
  }
}

}  // namespace
}  // namespace embla::testing
