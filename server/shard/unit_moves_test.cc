// Units move between nodes, and between devices of a node, while trainers update them: afterwards
// every row and all optimizer state have the bits that they have without moves, under any
// optimizer, number format and tiling.
//
// The oracle is a second cluster that gets the same updates, moves nothing and has CPU devices
// only; where units move, two nodes have simulated GPUs beside CPU devices. Trainers own
// disjoint rows of their replica group's copy, so the order of each row's updates is known; they
// repeat requests now and then. Groups are averaged between two rounds of training, while units
// move.
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/id_rows.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/unit_moves.h"

namespace embla {
namespace {

using ::embla::testing::Await;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::StatusIs;
using ::embla::testing::UnitMoves;
using ::embla::testing::UpdatePartData;

constexpr std::uint32_t kNodes = 3;
constexpr std::uint32_t kDevices = 2;  // Devices of each replica group.
constexpr int kTrainers = 2;

struct Case {
  OptimizerKind optimizer;
  DType dtype;
  ShardingType sharding;
  std::int64_t rows = 60;
  std::uint32_t dim = 8;
  std::uint32_t granules = 12;
  int updates = 40;                           // Updates of each trainer in each round.
  std::optional<ZchSpec> zch = std::nullopt;  // Its buckets are `granules`.
  std::uint32_t groups = 1;
  int rounds = 1;                // With an averaging between two.
  std::uint32_t sync_every = 0;  // Instead: steps of the groups until they are averaged.
  std::uint32_t nodes = kNodes;
};

TableSpec SpecOf(const Case& c) {
  TableSpec spec;
  spec.id = TableId{7};
  spec.name = "t";
  spec.rows = c.rows;
  spec.dim = c.dim;
  spec.dtype = c.dtype;
  spec.zch = c.zch;
  spec.row_granules = c.granules;
  spec.replica_groups = c.groups;
  spec.sync_every_steps = c.sync_every;
  spec.optimizer.kind = c.optimizer;
  spec.optimizer.learning_rate = 0.1f;
  spec.rounding = c.dtype == DType::kFloat32 ? Rounding::kNearest : Rounding::kStochastic;
  spec.SetDefaults();
  return spec;
}

// The gradient of an id's row in the columns of one cut.
struct RowGradient {
  std::size_t unit = 0;
  std::int64_t id = 0;
  std::uint32_t group = 0;
  std::vector<float> values;
  float row_sum_squares = 0.0f;
};

class Training {
 public:
  Training(const Case& c, std::uint32_t seed)
      : spec_(SpecOf(c)),
        id_rows_(spec_),
        nodes_(c.nodes),
        still_(Options(c, seed)),
        moving_(WithGpus(Options(c, seed))),
        seed_(seed) {
    PlacementRequest request;
    request.sharding = c.sharding;
    request.min_partition = 4;
    const absl::StatusOr<TablePlan> plan = PlaceTable(spec_, request, still_.specs(), {});
    EMBLA_CHECK(plan.ok());
    EMBLA_CHECK(still_.Install({*plan}).ok() && moving_.Install({*plan}).ok());
    home_ = std::make_unique<UnitMoves>(still_, *plan);
    moves_ = std::make_unique<UnitMoves>(moving_, *plan);
  }

  // A part of one trainer's life.
  void Train(int trainer, int round, int updates) {
    std::mt19937 random(seed_ + 100 * static_cast<std::uint32_t>(round + 1) +
                        static_cast<std::uint32_t>(trainer));
    for (int i = 1; i <= updates; ++i) {
      const std::vector<RowGradient> gradients = MakeGradients(trainer, random);
      UpdateBatch header;
      header.session = SessionId{static_cast<std::uint64_t>(trainer) + 1};
      header.step = static_cast<std::uint64_t>(round * updates + i);
      header.seq = header.first_incomplete = UpdateSeq{header.step};
      Send(still_, *home_, header, gradients, nullptr);
      Send(moving_, *moves_, header, gradients, &random);
      if (spec_.sync_every_steps > 0) continue;  // Another trainer may complete the count any time.
      const RowGradient& seen = gradients[random() % gradients.size()];
      EXPECT_EQ(Read(still_, *home_, seen), Read(moving_, *moves_, seen)) << "id " << seen.id;
    }
  }

  // Moves units about until `stop`, but a few in any case.
  void MoveAbout(const std::atomic<bool>& stop) {
    std::mt19937 random(seed_);
    for (int moved = 0; !stop.load() || moved < 10; ++moved) {
      const std::size_t unit = random() % moves_->units().size();
      const NodeId target{static_cast<std::uint32_t>(random() % nodes_) + 1};
      const auto device = static_cast<std::uint32_t>(random() % kDevices);
      const bool in_vain = random() % 4 == 0;
      const absl::Status status = target == moves_->OwnerOf(unit)
                                      ? MoveWithinNode(unit, device, in_vain)
                                      : MoveToNode(unit, target, device, in_vain);
      ASSERT_THAT(status, IsOk());
    }
  }

  // Once more, of ids that have rows and ids that have none.
  void CompareReads() {
    std::mt19937 random(seed_ + 1);
    for (int i = 0; i < 50; ++i) {
      for (const RowGradient& seen : MakeGradients(i % kTrainers, random)) {
        EXPECT_EQ(Read(still_, *home_, seen), Read(moving_, *moves_, seen)) << "id " << seen.id;
      }
    }
  }

  // Averages all units of both clusters, those that are being handed over when they have come.
  void Sync() {
    for (LocalCluster* const cluster : {&still_, &moving_}) {
      std::set<std::size_t> left;
      for (std::size_t unit = 0; unit < moves_->units().size(); ++unit) left.insert(unit);
      while (!left.empty()) {
        for (std::uint32_t n = 0; n < nodes_; ++n) SyncNode(*cluster, n, left);
      }
    }
  }

  // By id, first column and group.
  using Key = std::tuple<std::int64_t, std::uint32_t, std::uint32_t>;
  using Rows = std::map<Key, std::vector<std::byte>>;
  Rows StillRows() { return ReadAll(still_); }
  Rows MovedRows() { return ReadAll(moving_); }

 private:
  std::uint32_t GroupOf(int trainer) const {
    return static_cast<std::uint32_t>(trainer) % spec_.replica_groups;
  }

  void SyncNode(LocalCluster& cluster, std::uint32_t node, std::set<std::size_t>& left) {
    const auto synced = Await<SyncResult>([&](SyncDone done) {
      cluster.node(node).Sync({{spec_.id}, PlanVersion{1}}, absl::InfiniteFuture(),
                              std::move(done));
    });
    if (absl::IsFailedPrecondition(synced.status())) return;  // Nothing of the table was ever here.
    ASSERT_THAT(synced, IsOk());
    for (const AveragedRows& averaged : synced->tables[0].averaged) {
      std::erase_if(left, [&](std::size_t unit) {
        const UnitShape& shape = moves_->shape(unit);
        return averaged.columns.begin == shape.column_begin &&
               averaged.rows.begin <= shape.row_begin && shape.row_end <= averaged.rows.end;
      });
    }
  }

  absl::Status MoveToNode(std::size_t unit, NodeId target, std::uint32_t device, bool in_vain) {
    return in_vain ? moves_->MoveInVain(unit, target, device) : moves_->Move(unit, target, device);
  }
  absl::Status MoveWithinNode(std::size_t unit, std::uint32_t device, bool in_vain) {
    return in_vain ? moves_->ChangeDeviceInVain(unit, device) : moves_->ChangeDevice(unit, device);
  }

  static LocalCluster::Options Options(const Case& c, std::uint32_t seed) {
    LocalCluster::Options options;
    options.nodes = c.nodes;
    options.devices_per_node = kDevices * c.groups;
    options.seed = seed;
    return options;
  }

  static LocalCluster::Options WithGpus(LocalCluster::Options options) {
    options.is_gpu = [](std::uint32_t node, std::uint32_t device) {
      return node < 2 && device == node;
    };
    // Every other cluster has room for an eighth of the rows in its GPUs.
    if (options.seed % 2 == 0) {
      options.gpu_cache_bytes = static_cast<std::size_t>(options.device_bytes / 8);
    }
    return options;
  }

  // Draws one of the trainer's rows, or, in a ZCH table, an id of its buckets: evictions depend on
  // the order of a bucket's updates.
  std::int64_t RandomId(int trainer, std::mt19937& random) const {
    const int groups = static_cast<int>(spec_.replica_groups);
    while (true) {
      const std::int64_t id = random() % (id_rows_.hashed() ? 3000 : spec_.rows);
      const std::int64_t part = id_rows_.hashed() ? id_rows_.BucketOf(RowId{id}) : id;
      if (part % (kTrainers / groups) == trainer / groups) return id;
    }
  }

  std::vector<RowGradient> MakeGradients(int trainer, std::mt19937& random) const {
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    std::set<std::int64_t> ids;
    for (int i = 0; i < 12; ++i) ids.insert(RandomId(trainer, random));
    std::vector<RowGradient> gradients;
    for (const std::int64_t id : ids) {
      const std::int64_t row = id_rows_.RowOf(RowId{id});
      std::vector<float> whole(spec_.dim);
      float sum = 0.0f;
      for (float& v : whole) v = value(random), sum += v * v;
      for (std::size_t unit = 0; unit < moves_->units().size(); ++unit) {
        const UnitShape& shape = moves_->shape(unit);
        if (row < shape.row_begin || row >= shape.row_end) continue;
        gradients.push_back({unit,
                             id,
                             GroupOf(trainer),
                             {whole.begin() + shape.column_begin, whole.begin() + shape.column_end},
                             sum});
      }
    }
    return gradients;
  }

  // A part per column cut.
  std::vector<UpdatePartData> PartsOf(const UnitMoves& moves,
                                      const std::vector<RowGradient>& rows) const {
    std::map<std::uint32_t, std::vector<float>> values;
    std::map<std::uint32_t, UpdatePartData> parts;
    for (const RowGradient& row : rows) {
      const UnitShape& shape = moves.shape(row.unit);
      UpdatePartData& data = parts[shape.column_begin];
      data.part.table = spec_.id;
      data.part.replica_group = row.group;
      data.part.column_begin = shape.column_begin;
      data.part.column_end = shape.column_end;
      data.ids.push_back(RowId{row.id});
      if (data.part.columns() != spec_.dim) data.row_sum_squares.push_back(row.row_sum_squares);
      std::vector<float>& all = values[shape.column_begin];
      all.insert(all.end(), row.values.begin(), row.values.end());
    }
    std::vector<UpdatePartData> list;
    for (auto& [column, data] : parts) {
      data.gradients =
          embla::testing::EncodeRows(values[column], data.part.columns(), DType::kFloat32);
      list.push_back(std::move(data));
    }
    return list;
  }

  // Sends the gradients to whoever has them until all are applied; `random`: some requests twice.
  void Send(LocalCluster& cluster, const UnitMoves& moves, const UpdateBatch& header,
            std::vector<RowGradient> left, std::mt19937* random) {
    const auto is_sent = [&] {
      std::map<NodeId, std::vector<RowGradient>> by_node;
      // One view of the owners for all rows: two requests of one seq must not share a unit, or the
      // second is a repetition to it.
      const std::vector<NodeId> owners = moves.Owners();
      for (RowGradient& row : left) by_node[owners[row.unit]].push_back(std::move(row));
      left.clear();
      for (auto& [node, rows] : by_node) {
        const std::vector<UpdatePartData> parts = PartsOf(moves, rows);
        if (random != nullptr && (*random)() % 4 == 0) {
          // Its answer is lost. The next process must not apply again what this one applied.
          (void)cluster.Update(node, Pack(header, parts));
        }
        const absl::StatusOr<UpdateResult> result = cluster.Update(node, Pack(header, parts));
        if (!result.ok()) {
          EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition));
        }
        for (RowGradient& row : rows) {
          if (!result.ok() || IsRefused(*result, parts, moves.shape(row.unit), row.id)) {
            left.push_back(std::move(row));
          }
        }
      }
      return left.empty();
    };
    AwaitFor(is_sent, absl::Seconds(60), "the owners have taken every row");
  }

  bool IsRefused(const UpdateResult& result, const std::vector<UpdatePartData>& parts,
                 const UnitShape& shape, std::int64_t id) const {
    const std::int64_t row = id_rows_.RowOf(RowId{id});
    for (const RefusedUnit& refused : result.refused) {
      if (parts[refused.part].part.column_begin == shape.column_begin && refused.row_begin <= row &&
          row < refused.row_end) {
        return true;
      }
    }
    return false;
  }

  std::vector<float> Read(LocalCluster& cluster, const UnitMoves& moves, const RowGradient& row) {
    LookupPartData data;
    data.part.table = spec_.id;
    data.part.replica_group = row.group;
    data.part.column_begin = moves.shape(row.unit).column_begin;
    data.part.column_end = moves.shape(row.unit).column_end;
    data.ids = {RowId{row.id}};
    absl::StatusOr<LookupResult> result;
    AwaitFor(
        [&] {
          result = cluster.Lookup(moves.OwnerOf(row.unit), Pack(LookupBatch{}, {data}));
          // The unit is not there yet, or not any more.
          return !absl::IsFailedPrecondition(result.status());
        },
        absl::Seconds(60), "the owner has the unit");
    EXPECT_THAT(result, IsOk());
    if (!result.ok()) return {};
    const std::span<const float> values = result->rows.As<float>();
    return {values.begin(), values.end()};
  }

  // Weights and state of every row and cut.
  Rows ReadAll(LocalCluster& cluster) {
    Rows all;
    for (std::uint32_t n = 0; n < nodes_; ++n) {
      for (std::uint32_t group = 0; group < spec_.replica_groups; ++group) {
        ReadCopy(cluster.node(n), group, all);
      }
    }
    return all;
  }

  void ReadCopy(ShardNode& node, std::uint32_t group, Rows& all) const {
    ShardNode::RowsQuery query;
    query.table = spec_.id;
    query.row_end = spec_.rows;
    query.with_state = true;
    query.replica_group = group;
    const absl::Status status = node.ReadRows(query, [&](Buffer bytes) {
      const absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes.bytes());
      EMBLA_CHECK(block.ok());
      AddRows(*block, group, all);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
  }

  static void AddRows(const RowBlock& block, std::uint32_t group, Rows& all) {
    const std::size_t row_bytes = RowBytes(block.shape.dtype, block.shape.columns());
    const std::size_t floats = block.shape.state_floats;
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const auto weights = block.weights.subspan(i * row_bytes, row_bytes);
      const auto state = std::as_bytes(block.state.subspan(i * floats, floats));
      std::vector<std::byte> image(weights.begin(), weights.end());
      image.insert(image.end(), state.begin(), state.end());
      const auto [it, is_new] = all.try_emplace(
          Key(ToInt(block.rows[i]), block.shape.column_begin, group), std::move(image));
      EXPECT_TRUE(is_new) << "row " << ToInt(block.rows[i]) << " is on two nodes";
    }
  }

  const TableSpec spec_;
  const IdRows id_rows_;
  const std::uint32_t nodes_;
  LocalCluster still_;
  LocalCluster moving_;
  const std::uint32_t seed_;
  std::unique_ptr<UnitMoves> home_;
  std::unique_ptr<UnitMoves> moves_;
};

void CheckCase(const Case& c) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed, " optimizer ", static_cast<int>(c.optimizer), " dtype ",
                            static_cast<int>(c.dtype), " sharding ", static_cast<int>(c.sharding)));
  Training training(c, seed);
  std::atomic<bool> stop = false;
  std::thread mover([&] { training.MoveAbout(stop); });
  for (int round = 0; round < c.rounds; ++round) {
    std::vector<std::thread> trainers;
    for (int t = 0; t < kTrainers; ++t) {
      trainers.emplace_back([&, t] { training.Train(t, round, c.updates); });
    }
    for (std::thread& trainer : trainers) trainer.join();
    // The last round leaves some updates averaged and some not.
    if (c.groups > 1 && c.sync_every == 0 && round + 1 < c.rounds) training.Sync();
  }
  stop = true;
  mover.join();
  const Training::Rows still = training.StillRows();
  const Training::Rows moved = training.MovedRows();
  ASSERT_EQ(still.size(), moved.size());
  for (const auto& [key, image] : still) {
    const auto& [id, column, group] = key;
    ASSERT_TRUE(moved.contains(key)) << "id " << id << " column " << column << " group " << group;
    ASSERT_EQ(moved.at(key), image) << "id " << id << " column " << column << " group " << group;
  }
  training.CompareReads();
}

class UnitMovesTest : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(UnitMovesTest, EveryRowAndItsStateAreAsWithoutMoves) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const ShardingType sharding :
         {ShardingType::kRowWise, ShardingType::kColumnWise, ShardingType::kTableWise}) {
      CheckCase({.optimizer = GetParam(), .dtype = dtype, .sharding = sharding});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, UnitMovesTest, ::testing::ValuesIn(kOptimizerKinds));

TEST(UnitMoves, UnitsOfSeveralChunksMove) {
  CheckCase({.optimizer = OptimizerKind::kSgd,
             .dtype = DType::kFloat32,
             .sharding = ShardingType::kTableWise,
             .rows = 1200,
             .dim = 1024,
             .granules = 2});
}

// Averaged between rounds, and in between by moves that come and go.
TEST(UnitMovesOfGroups, EveryCopyIsAsWithoutMoves) {
  for (const OptimizerKind optimizer : kOptimizerKinds) {
    for (const ShardingType sharding :
         {ShardingType::kRowWise, ShardingType::kColumnWise, ShardingType::kTableWise}) {
      CheckCase({.optimizer = optimizer,
                 .dtype = sharding == ShardingType::kRowWise ? DType::kBFloat16 : DType::kFloat32,
                 .sharding = sharding,
                 .updates = 8,
                 .groups = 2,
                 .rounds = 6});
    }
  }
}

TEST(UnitMovesOfGroups, UnitsOfSeveralChunksMove) {
  CheckCase({.optimizer = OptimizerKind::kAdam,
             .dtype = DType::kFloat16,
             .sharding = ShardingType::kTableWise,
             .rows = 600,
             .dim = 1024,
             .granules = 2,
             .updates = 5,
             .groups = 2,
             .rounds = 4});
}

// One trainer per group, and each step has rows on the node: it averages after every third step,
// wherever on its devices the units are.
TEST(UnitMovesOfGroups, AveragingByItselfIsWhereItIsWithoutMovesWithinANode) {
  CheckCase({.optimizer = OptimizerKind::kAdam,
             .dtype = DType::kFloat32,
             .sharding = ShardingType::kRowWise,
             .updates = 1,
             .groups = 2,
             .rounds = 40,
             .sync_every = 3,
             .nodes = 1});
}

TEST(UnitMoves, BucketsOfZchTablesMoveWithTheirIdsAndSharedRows) {
  for (const std::uint32_t reserved : {0u, 5u}) {
    for (const zch::Policy policy : {zch::Policy::kLru, zch::Policy::kDistanceLfu}) {
      ZchSpec zch{.buckets = 12, .policy = policy};
      const bool counts = (reserved > 0) == (policy == zch::Policy::kLru);
      zch.admission = counts ? zch::Admission::kCount : zch::Admission::kAll;
      zch.admission_count = 2;
      zch.reserved_lanes = reserved;
      if (reserved > 0) zch.unseen = zch::Unseen::kDefault;
      CheckCase({.optimizer = OptimizerKind::kAdam,
                 .dtype = DType::kFloat16,
                 .sharding = ShardingType::kRowWise,
                 .rows = 12 * 64,
                 .updates = 150,
                 .zch = zch});
    }
  }
}

}  // namespace
}  // namespace embla
