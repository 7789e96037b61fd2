// Nodes whose devices are GPUs, simulated ones: beside CPU devices, and when one stops.
// shard_node_oracle_test and zch_tables_test cover the answers of such nodes, unit_moves_test and
// unit_relocation_test cover moves between GPUs and CPUs.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/metrics/metrics.h"
#include "core/metrics/names.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/unit_moves.h"

namespace embla {
namespace {

using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::UpdatePartData;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;
using Fault = gpu::SimulatedFault;

constexpr NodeId kFirst{1};

TableSpec Spec(std::uint32_t id) {
  TableSpec spec;
  spec.id = TableId{id};
  spec.name = absl::StrCat("t", id);
  spec.rows = 200;
  spec.dim = 12;
  spec.dtype = DType::kBFloat16;
  spec.rounding = Rounding::kStochastic;
  spec.seed = 7;
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.optimizer.learning_rate = 0.1f;
  spec.SetDefaults();
  return spec;
}

TablePlan Place(const LocalCluster& cluster, const TableSpec& spec, ShardingType type) {
  const absl::StatusOr<TablePlan> plan =
      PlaceTable(spec, {.sharding = type, .min_partition = 4}, cluster.specs(), {});
  EXPECT_THAT(plan, IsOk());
  return *plan;
}

// On one device of the first node.
TablePlan PlaceOn(const LocalCluster& cluster, const TableSpec& spec, std::uint32_t device) {
  TablePlan plan = Place(cluster, spec, ShardingType::kTableWise);
  plan.replicas.front().front().device = {kFirst, device};
  return plan;
}

UpdatePartData Gradients(const TableSpec& spec, std::vector<RowId> ids, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> gradients(ids.size() * spec.dim);
  for (float& g : gradients) g = normal(random);
  UpdatePartData data;
  data.part.table = spec.id;
  data.part.column_end = spec.dim;
  data.gradients = EncodeRows(gradients, spec.dim, DType::kFloat32);
  data.ids = std::move(ids);
  return data;
}

UpdateBatch Header(std::uint64_t seq) {
  UpdateBatch header;
  header.plan_version = PlanVersion{1};
  header.session = SessionId{1};
  header.seq = UpdateSeq{seq};
  header.first_incomplete = UpdateSeq{1};
  header.step = seq;
  return header;
}

LookupPartData Bags(const TableSpec& spec, std::vector<RowId> ids,
                    std::vector<std::uint32_t> lengths) {
  LookupPartData data;
  data.part.table = spec.id;
  data.part.column_end = spec.dim;
  data.part.pooling = Pooling::kSum;
  data.ids = std::move(ids);
  data.lengths = std::move(lengths);
  return data;
}

// Weights and state of every row, by row.
std::map<std::int64_t, std::string> AllRows(LocalCluster& cluster, const TableSpec& spec) {
  std::map<std::int64_t, std::string> rows;
  for (const NodeSpec& node : cluster.specs()) {
    const ShardNode::RowsQuery query{
        .table = spec.id, .row_end = spec.rows, .row_ids = {}, .with_state = true};
    const absl::Status status = cluster.node(node.id).ReadRows(query, [&](Buffer bytes) {
      const absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes.bytes());
      if (!block.ok()) return block.status();
      const std::size_t count = block->rows.size();
      const auto weights = block->weights;
      const auto state = std::as_bytes(block->state);
      for (std::size_t i = 0; i < count; ++i) {
        std::string& row = rows[ToInt(block->rows[i])];
        for (const auto& part :
             {weights.subspan(i * (weights.size() / count), weights.size() / count),
              state.subspan(i * (state.size() / count), state.size() / count)}) {
          row.append(reinterpret_cast<const char*>(part.data()), part.size());
        }
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(status, IsOk());
  }
  return rows;
}

// Five random updates, each to the nodes that have its rows.
void Train(LocalCluster& cluster, const TableSpec& spec, const TablePlan& plan) {
  std::mt19937 random(3);
  for (std::uint64_t step = 1; step <= 5; ++step) {
    std::map<NodeId, std::vector<RowId>> by_node;
    for (int i = 0; i < 150; ++i) {
      const auto row = static_cast<std::int64_t>(random() % 200);
      for (const Slice& slice : plan.primary()) {
        if (slice.row_begin > row || row >= slice.row_end) continue;
        by_node[slice.device.node].push_back(RowId{row});
      }
    }
    for (const auto& [node, ids] : by_node) {
      const auto result = cluster.Update(node, Pack(Header(step), {Gradients(spec, ids, random)}));
      ASSERT_THAT(result, IsOk());
    }
  }
}

// Two bags with rows of every device.
std::vector<std::byte> PooledRows(LocalCluster& cluster, const TableSpec& spec) {
  const std::vector<RowId> ids = {RowId{1}, RowId{90}, RowId{199}, RowId{7}};
  const auto result = cluster.Lookup(kFirst, Pack(LookupBatch{}, {Bags(spec, ids, {3, 1})}));
  EXPECT_THAT(result, IsOk());
  if (!result.ok()) return {};
  const auto bytes = result->rows.bytes();
  return {bytes.begin(), bytes.end()};
}

// A GPU that has all of its rows, and two that have about a tenth of them, by LRU and by LFU.
TEST(GpuNodes, ServeATableTogetherWithCpuDevicesToTheSameBits) {
  const TableSpec spec = Spec(1);
  std::map<std::int64_t, std::string> want;
  for (const std::size_t cache_divisor : {0, 1, 10, 11}) {
    const bool with_gpus = cache_divisor > 0;
    LocalCluster::Options options{.nodes = 2, .devices_per_node = 2};
    if (with_gpus) {
      options.is_gpu = [](std::uint32_t node, std::uint32_t device) {
        return node == 0 && device == 1;
      };
    }
    if (cache_divisor > 1) {
      options.gpu_cache_bytes = static_cast<std::size_t>(options.device_bytes) / cache_divisor;
      if (cache_divisor == 11) options.gpu_cache_policy = RowCache::Policy::kLfu;
    }
    Metrics metrics;
    options.metrics = &metrics;
    LocalCluster cluster(options);
    const TablePlan plan = Place(cluster, spec, ShardingType::kRowWise);
    ASSERT_EQ(plan.primary().size(), 4u);
    ASSERT_THAT(cluster.Install({plan}), IsOk());
    Train(cluster, spec, plan);
    if (with_gpus) {
      EXPECT_GT(cluster.gpu(0, 1)->used_bytes(), 50u / cache_divisor * 12 * 2);
      EXPECT_EQ(AllRows(cluster, spec), want);
      const auto pooled =
          cluster.Lookup(kFirst, Pack(LookupBatch{}, {Bags(spec, {RowId{60}, RowId{95}}, {2})}));
      EXPECT_THAT(pooled, IsOk());
      const double misses =
          metrics.MakeCounter(MetricNamed("embla_row_cache_misses_total"), {"t1", "1"}).value();
      EXPECT_EQ(misses > 0, cache_divisor > 1);
    } else {
      want = AllRows(cluster, spec);
      EXPECT_EQ(want.size(), 200u);
    }
  }
}

// Sums and means, also with ids that the table does not have, of whole rows and of cut ones; on
// GPUs that have all of their rows, and about a tenth of them.
TEST(GpuNodes, PoolToEveryWireFormatAsCpuDevicesDo) {
  TableSpec spec = Spec(1);
  spec.bounds = BoundsMode::kIgnore;
  std::mt19937 random(12);
  std::vector<std::uint32_t> lengths(4000);
  std::vector<RowId> ids;
  for (auto& length : lengths) {
    length = random() % 6;
    for (std::uint32_t i = 0; i < length; ++i) {
      ids.push_back(RowId{static_cast<std::int64_t>(random() % 220)});
    }
  }
  for (const ShardingType type : {ShardingType::kTableWise, ShardingType::kColumnWise}) {
    std::map<std::pair<Pooling, DType>, std::vector<std::byte>> want;
    for (const std::size_t cache_divisor : {0, 1, 10}) {
      Metrics metrics;
      LocalCluster::Options options{.devices_per_node = 2, .metrics = &metrics};
      options.is_gpu = [cache_divisor](std::uint32_t, std::uint32_t) { return cache_divisor > 0; };
      if (cache_divisor > 1) {
        options.gpu_cache_bytes = static_cast<std::size_t>(options.device_bytes) / cache_divisor;
      }
      LocalCluster cluster(options);
      const TablePlan plan = Place(cluster, spec, type);
      ASSERT_THAT(cluster.Install({plan}), IsOk());
      const auto bytes_out = [&] {
        double bytes = 0;
        for (const char* const device : {"0", "1"}) {
          bytes += metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {device, "out"})
                       .value();
        }
        return static_cast<std::size_t>(bytes);
      };
      for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
        for (const DType wire :
             {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8Rowwise}) {
          SCOPED_TRACE(::testing::Message()
                       << "sharding " << static_cast<int>(type) << " cache 1/" << cache_divisor
                       << " pooling " << static_cast<int>(pooling) << " wire "
                       << static_cast<int>(wire));
          LookupPartData bags = Bags(spec, ids, lengths);
          bags.part.pooling = pooling;
          LookupBatch header;
          header.wire_dtype = wire;
          const std::size_t bytes_before = bytes_out();
          const auto result = cluster.Lookup(kFirst, Pack(header, {bags}));
          ASSERT_THAT(result, IsOk());
          const auto rows = result->rows.bytes();
          const auto expected = want.try_emplace({pooling, wire}, rows.begin(), rows.end()).first;
          EXPECT_TRUE(std::ranges::equal(rows, expected->second));
          if (cache_divisor != 1 || type != ShardingType::kTableWise) continue;
          const std::size_t reply_bytes = lengths.size() * RowBytes(wire, spec.dim);
          EXPECT_GE(bytes_out() - bytes_before, reply_bytes);
          EXPECT_LT(bytes_out() - bytes_before, reply_bytes + 64);  // Pieces are padded.
        }
      }
    }
  }
}

TEST(GpuNodes, AddUpPartialSumsToTheSameBitsAsCpuDevicesByAnyCollectives) {
  std::vector<std::byte> want;
  for (const bool gpus : {false, true}) {
    for (const Collectives collectives : {Collectives::kHost, Collectives::kPeer}) {
      if (!gpus && collectives == Collectives::kPeer) continue;
      LocalCluster cluster({.devices_per_node = 3,
                            .is_gpu = [gpus](std::uint32_t, std::uint32_t) { return gpus; },
                            .collectives = collectives});
      for (const auto type : {ShardingType::kTableRowWise, ShardingType::kRowWise}) {
        TableSpec spec = Spec(static_cast<std::uint32_t>(type));
        ASSERT_THAT(cluster.Install({Place(cluster, spec, type)}), IsOk());
        const std::vector<std::byte> sums = PooledRows(cluster, spec);
        EXPECT_EQ(sums.size(), 2 * 12 * sizeof(float));
        if (want.empty()) want = sums;
        EXPECT_EQ(sums, want);
      }
    }
  }
}

TEST(GpuNodes, AddUpPartialSumsAlsoAfterAGpuHasStopped) {
  LocalCluster cluster({.devices_per_node = 3,
                        .is_gpu = [](std::uint32_t, std::uint32_t) { return true; },
                        .collectives = Collectives::kPeer});
  const TableSpec spec = Spec(1);
  TablePlan plan = PlaceOn(cluster, spec, 0);
  plan.replicas.front() = {{0, 100, 0, 12, {kFirst, 0}}, {100, 200, 0, 12, {kFirst, 1}}};
  ASSERT_THAT(cluster.Install({plan, PlaceOn(cluster, Spec(2), 2)}), IsOk());
  const std::vector<std::byte> before = PooledRows(cluster, spec);
  // It has no row of the table, but a part in its sums.
  EXPECT_THAT(cluster.gpu(0, 2)->Stop(absl::InternalError("test")), Not(IsOk()));
  EXPECT_EQ(PooledRows(cluster, spec), before);
  EXPECT_EQ(PooledRows(cluster, spec), before);
}

// With less room than the test has ids.
TableSpec SpecOfAnyIds(std::uint32_t id) {
  TableSpec spec = Spec(id);
  spec.zch = ZchSpec{.buckets = 2};
  spec.rows = 128;
  spec.row_granules = spec.column_granule_width = 0;  // A bucket each, and whole rows.
  spec.SetDefaults();
  return spec;
}

TEST(GpuNodes, HaveTheIdsOfZchTablesBesideTheirRowsAndCountThemAsCpuDevicesDo) {
  std::vector<std::int64_t> used;
  std::vector<std::vector<double>> counts;
  for (const bool on_gpu : {false, true}) {
    Metrics metrics;
    LocalCluster cluster({.devices_per_node = 1,
                          .is_gpu = [on_gpu](std::uint32_t, std::uint32_t) { return on_gpu; },
                          .metrics = &metrics});
    const TableSpec spec = SpecOfAnyIds(1);
    ASSERT_THAT(cluster.Install({PlaceOn(cluster, spec, 0)}), IsOk());
    std::mt19937 random(9);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      std::vector<RowId> ids;
      for (int i = 0; i < 100; ++i) ids.push_back(RowId{static_cast<std::int64_t>(random() % 300)});
      const auto updated =
          cluster.Update(kFirst, Pack(Header(step), {Gradients(spec, ids, random)}));
      ASSERT_THAT(updated, IsOk());
      ids.push_back(RowId{-1});  // Nobody's.
      const auto found = cluster.Lookup(kFirst, Pack(LookupBatch{}, {Bags(spec, ids, {101})}));
      ASSERT_THAT(found, IsOk());
    }
    used.push_back(cluster.UsedBytes(kFirst, 0));
    counts.push_back({
        metrics.MakeCounter(MetricNamed("embla_zch_hits_total"), {spec.name, "0"}).value(),
        metrics.MakeCounter(MetricNamed("embla_zch_inserts_total"), {spec.name, "0"}).value(),
        metrics.MakeCounter(MetricNamed("embla_zch_unseen_total"), {spec.name, "0"}).value(),
        metrics.MakeCounter(MetricNamed("embla_zch_collisions_avoided_total"), {spec.name, "0"})
            .value(),
        metrics.MakeCounter(MetricNamed("embla_zch_evicted_age_steps_total"), {spec.name, "0"})
            .value(),
        metrics.MakeCounter(MetricNamed("embla_zch_evictions_total"), {spec.name, "replaced"})
            .value(),
        metrics.MakeGauge(MetricNamed("embla_zch_residents"), {spec.name, "0"}).value(),
        metrics.MakeGauge(MetricNamed("embla_table_bytes"), {spec.name, "0"}).value(),
    });
  }
  EXPECT_EQ(used[1], used[0]);
  EXPECT_EQ(counts[1], counts[0]);
  for (const double count : counts[1]) EXPECT_GT(count, 0);
}

// Updates that a GPU sums: ids twice, ids that share rows, ids without one, and a bucket that
// stands still for a while.
TEST(GpuNodes, SumLargeUpdatesOfZchTablesAsCpuDevicesDo) {
  std::vector<std::string> rows;
  std::vector<std::uint64_t> bytes_in;
  for (const bool on_gpu : {false, true}) {
    Metrics metrics;
    LocalCluster cluster({.devices_per_node = 1,
                          .is_gpu = [on_gpu](std::uint32_t, std::uint32_t) { return on_gpu; },
                          .metrics = &metrics});
    TableSpec spec = SpecOfAnyIds(1);
    spec.zch->reserved_lanes = 2;
    spec.zch->unseen = zch::Unseen::kDefault;
    ASSERT_THAT(cluster.Install({PlaceOn(cluster, spec, 0)}), IsOk());
    const auto gate = std::make_shared<testing::ScriptedGate>(UnitWindows());
    UnitHost& host = cluster.node(kFirst).units();
    testing::RunInOrder(host, spec.id, [&] { host.SetGate({spec.id, 1, 0}, gate); });
    std::mt19937 random(10);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      testing::RunInOrder(host, spec.id, [&] { step == 3 ? gate->Freeze() : gate->Unfreeze(); });
      std::vector<RowId> ids;
      for (int i = 0; i < 2000; ++i) {
        ids.push_back(RowId{static_cast<std::int64_t>(random() % 300)});
      }
      const auto updated =
          cluster.Update(kFirst, Pack(Header(step), {Gradients(spec, ids, random)}));
      ASSERT_THAT(updated, IsOk());
      EXPECT_EQ(updated->refused.empty(), step != 3);
    }
    rows.emplace_back();
    for (const auto& [row, contents] : AllRows(cluster, spec)) rows.back() += contents;
    bytes_in.push_back(static_cast<std::uint64_t>(
        metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {"0", "in"}).value()));
  }
  EXPECT_EQ(rows[1], rows[0]);
  EXPECT_EQ(bytes_in[0], 0u);
  EXPECT_GT(bytes_in[1], 4 * 1000 * 12 * sizeof(float));  // Gradients, not their sums.
}

// The ids of a part and their gradients in another order.
void Shuffle(UpdatePartData& data, std::uint32_t dim, std::mt19937& random) {
  const std::size_t row_bytes = dim * sizeof(float);
  const UpdatePartData was = data;
  std::vector<std::size_t> order(data.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t i = 0; i < order.size(); ++i) {
    data.ids[i] = was.ids[order[i]];
    std::memcpy(data.gradients.data() + i * row_bytes, was.gradients.data() + order[i] * row_bytes,
                row_bytes);
  }
}

// All evictions so far, with the rows as they were.
std::string Evicted(LocalCluster& cluster, TableId table) {
  std::string text;
  const auto log = cluster.node(kFirst).Evictions(table);
  EXPECT_THAT(log, IsOk());
  for (std::uint64_t at = 0;;) {
    const EvictionLog::Piece piece = (*log)->Read(at);
    if (piece.rows == nullptr) return text;
    at = piece.next;
    for (const zch::Eviction& eviction : piece.rows->evictions) {
      absl::StrAppend(&text, ToInt(eviction.id), " from ", static_cast<std::int64_t>(eviction.slot),
                      ", last seen ", eviction.last_step, ", at ", eviction.step, "\n");
    }
    const auto rows = piece.rows->row_block.bytes();
    text.append(reinterpret_cast<const char*>(rows.data()), rows.size());
  }
}

// Two features with TTLs of their own, which have ids in common: in order on a CPU, and in two
// other orders on a GPU.
TEST(GpuNodes, SettleTheIdsOfZchTablesAlikeInWhateverOrderTheyCome) {
  std::vector<std::string> rows, evicted;
  for (const std::uint32_t shuffled : {0, 1, 2}) {
    LocalCluster cluster(
        {.devices_per_node = 1,
         .is_gpu = [shuffled](std::uint32_t, std::uint32_t) { return shuffled != 0; }});
    TableSpec spec = SpecOfAnyIds(1);
    spec.zch->policy = zch::Policy::kTtl;
    spec.zch->ttl_steps = 2;
    spec.zch->evict_unexpired = true;
    spec.zch->eviction_buffer_bytes = std::size_t{64} << 20;
    ASSERT_THAT(cluster.Install({PlaceOn(cluster, spec, 0)}), IsOk());
    std::mt19937 random(11), order(shuffled);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      std::vector<UpdatePartData> parts;
      for (const std::uint32_t ttl : {1, 3}) {
        std::set<RowId> ids;
        while (ids.size() < 700) ids.insert(RowId{static_cast<std::int64_t>(random() % 1500)});
        parts.push_back(Gradients(spec, {ids.begin(), ids.end()}, random));
        parts.back().part.ttl_steps = ttl;
        if (shuffled != 0) Shuffle(parts.back(), spec.dim, order);
      }
      ASSERT_THAT(cluster.Update(kFirst, Pack(Header(step), parts)), IsOk());
    }
    rows.emplace_back();
    for (const auto& [row, contents] : AllRows(cluster, spec)) rows.back() += contents;
    evicted.push_back(Evicted(cluster, spec.id));
    EXPECT_EQ(rows.back(), rows.front());
    EXPECT_EQ(evicted.back(), evicted.front());
  }
  EXPECT_NE(evicted.front(), "");
}

// Gradients of 400 bags with 2,400 ids or more.
UpdatePartData BagGradients(const TableSpec& spec, Pooling pooling, bool weighted,
                            std::mt19937& random) {
  std::vector<std::uint32_t> lengths(400);
  std::vector<RowId> ids;
  for (auto& length : lengths) {
    length = ids.size() < 2400 ? random() % 15 : 0;
    for (std::uint32_t i = 0; i < length; ++i) {
      ids.push_back(RowId{static_cast<std::int64_t>(random() % 200)});
    }
  }
  UpdatePartData data = Gradients(spec, std::vector<RowId>(lengths.size()), random);
  data.part.form = UpdatePart::Form::kBags;
  data.part.pooling = pooling;
  for (std::size_t i = 0; weighted && i < ids.size(); ++i) {
    data.weights.push_back(static_cast<float>(random() % 5) - 1.5f);
  }
  data.lengths = std::move(lengths);
  data.ids = std::move(ids);
  return data;
}

// Sums, means, weights, and all of them at once beside gradients per row; all rows on one device,
// or half of each bag's on each of two.
TEST(GpuNodes, StepWithGradientsOfBagsAsCpuDevicesDo) {
  const TableSpec spec = Spec(1);
  for (const ShardingType type : {ShardingType::kTableWise, ShardingType::kRowWise}) {
    std::vector<std::string> rows;
    for (const bool on_gpu : {false, true}) {
      Metrics metrics;
      LocalCluster cluster({.devices_per_node = 2,
                            .is_gpu = [on_gpu](std::uint32_t, std::uint32_t) { return on_gpu; },
                            .metrics = &metrics});
      const TablePlan plan = Place(cluster, spec, type);
      ASSERT_THAT(cluster.Install({plan}), IsOk());
      std::mt19937 random(13);
      const std::vector<std::vector<UpdatePartData>> updates = {
          {BagGradients(spec, Pooling::kSum, false, random)},
          {BagGradients(spec, Pooling::kMean, false, random)},
          {BagGradients(spec, Pooling::kSum, true, random)},
          {BagGradients(spec, Pooling::kMean, false, random),
           Gradients(spec, {RowId{3}, RowId{180}}, random)},
          {BagGradients(spec, Pooling::kMean, false, random),
           BagGradients(spec, Pooling::kSum, true, random),
           BagGradients(spec, Pooling::kSum, false, random),
           Gradients(spec, {RowId{199}, RowId{0}}, random)},
      };
      std::vector<double> bytes_in;
      for (std::uint64_t step = 1; step <= updates.size(); ++step) {
        const auto& parts = updates[step - 1];
        ASSERT_THAT(cluster.Update(kFirst, Pack(Header(step), parts)), IsOk());
        bytes_in.push_back(
            metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {"0", "in"}).value());
      }
      rows.emplace_back();
      for (const auto& [row, contents] : AllRows(cluster, spec)) rows.back() += contents;
      if (!on_gpu || type != ShardingType::kTableWise) continue;
      // Bags travel as such: an id takes 4 bytes, and a bag 8 beside its gradient.
      const UpdatePartData& means = updates[1].front();
      const std::size_t bag_bytes = spec.dim * sizeof(float) + 8;
      EXPECT_LE(bytes_in[1] - bytes_in[0],
                means.ids.size() * 4 + means.lengths.size() * bag_bytes + 64);
    }
    EXPECT_EQ(rows[1], rows[0]) << "sharding " << static_cast<int>(type);
  }
}

TEST(GpuNodes, CountWhatTheirGpusDo) {
  Metrics metrics;
  LocalCluster cluster({.devices_per_node = 2,
                        .is_gpu = [](std::uint32_t, std::uint32_t device) { return device == 1; },
                        .metrics = &metrics});
  const Counter seconds = metrics.MakeCounter(MetricNamed("embla_gpu_seconds_total"), {"1"});
  const Counter kernels = metrics.MakeCounter(MetricNamed("embla_gpu_kernel_seconds_total"), {"1"});
  const Counter in = metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {"1", "in"});
  const Counter out = metrics.MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {"1", "out"});
  const Gauge stopped = metrics.MakeGauge(MetricNamed("embla_gpu_stopped"), {"1"});
  const Gauge memory = metrics.MakeGauge(MetricNamed("embla_gpu_memory_bytes"), {"1", "gpu"});
  const Gauge pinned = metrics.MakeGauge(MetricNamed("embla_gpu_memory_bytes"), {"1", "pinned"});
  const TableSpec spec = Spec(1);
  ASSERT_THAT(cluster.Install({Place(cluster, spec, ShardingType::kRowWise)}), IsOk());
  EXPECT_EQ(memory.value(), cluster.gpu(0, 1)->used_bytes());
  EXPECT_EQ(pinned.value(), cluster.gpu(0, 1)->pinned_bytes());
  EXPECT_EQ(in.value(), 0);
  PooledRows(cluster, spec);
  EXPECT_GT(seconds.value(), 0);
  EXPECT_GT(kernels.value(), 0);
  EXPECT_LE(kernels.value(), seconds.value());
  // At least the slot of row 199, and its part of one sum.
  EXPECT_GE(in.value(), sizeof(std::uint32_t));
  EXPECT_GE(out.value(), 12 * sizeof(float));
  for (const char* device : {"0", "1"}) {
    EXPECT_GT(metrics.MakeCounter(MetricNamed("embla_collective_seconds_total"), {device}).value(),
              0);
  }
  EXPECT_EQ(stopped.value(), 0);
  cluster.gpu(0, 1)->Inject({Fault::At::kQueue, Fault::Kind::kStop, 0});
  EXPECT_THAT(cluster.Lookup(kFirst, Pack(LookupBatch{}, {Bags(spec, {RowId{199}}, {1})})),
              Not(IsOk()));
  EXPECT_EQ(stopped.value(), 1);
}

class StoppingGpu : public ::testing::Test {
 protected:
  // One node: table 1 on a GPU, table 2 on a CPU device, table 3 over both.
  StoppingGpu()
      : cluster_({.devices_per_node = 2,
                  .is_gpu = [](std::uint32_t, std::uint32_t device) { return device == 0; }}) {
    const absl::Status status =
        cluster_.Install({PlaceOn(cluster_, Spec(1), 0), PlaceOn(cluster_, Spec(2), 1),
                          Place(cluster_, Spec(3), ShardingType::kRowWise)});
    EXPECT_THAT(status, IsOk());
  }

  absl::Status Update(std::uint32_t table, std::uint64_t seq, std::vector<RowId> ids = {RowId{5}}) {
    std::mt19937 random(1);
    return cluster_.Update(kFirst, Pack(Header(seq), {Gradients(Spec(table), ids, random)}))
        .status();
  }
  absl::Status Lookup(std::uint32_t table, std::vector<RowId> ids = {RowId{5}}) {
    const std::vector<std::uint32_t> lengths(1, static_cast<std::uint32_t>(ids.size()));
    return cluster_.Lookup(kFirst, Pack(LookupBatch{}, {Bags(Spec(table), ids, lengths)})).status();
  }

  LocalCluster cluster_;
};

TEST_F(StoppingGpu, TakesItsRowsAlongAndNothingElse) {
  cluster_.gpu(0, 0)->Inject({Fault::At::kQueue, Fault::Kind::kStop, 0});
  const absl::Status stopped = Lookup(1);
  EXPECT_EQ(stopped.code(), Code::kUnavailable);
  EXPECT_THAT(Message(stopped), HasSubstr("GPU 0 (simulated) has stopped"));
  EXPECT_EQ(Update(1, 1).code(), Code::kUnavailable);
  EXPECT_EQ(Lookup(1).code(), Code::kUnavailable);
  EXPECT_THAT(Lookup(2), IsOk());
  EXPECT_THAT(Update(2, 2), IsOk());
  EXPECT_EQ(Update(3, 3, {RowId{5}, RowId{150}}).code(), Code::kUnavailable);
  EXPECT_EQ(Lookup(3, {RowId{5}, RowId{150}}).code(), Code::kUnavailable);
  // Rows on the other device, of the same table.
  EXPECT_THAT(Update(3, 4, {RowId{150}}), IsOk());
  EXPECT_THAT(Lookup(3, {RowId{150}}), IsOk());
  // Everybody is still in step.
  EXPECT_THAT(Lookup(2), IsOk());
}

TEST_F(StoppingGpu, NeverAcknowledgesWhatItHasNotApplied) {
  EXPECT_THAT(Update(1, 1), IsOk());
  // In the step itself: by then the update is recorded as applied.
  cluster_.gpu(0, 0)->Inject({Fault::At::kSynchronize, Fault::Kind::kStop, 0});
  EXPECT_EQ(Update(1, 2).code(), Code::kUnavailable);
  EXPECT_EQ(Update(1, 2).code(), Code::kUnavailable);
}

TEST_F(StoppingGpu, NeverAcknowledgesWhatOnlyOtherDevicesHaveApplied) {
  const std::vector<RowId> ids = {RowId{5}, RowId{150}};
  cluster_.gpu(0, 0)->Inject({Fault::At::kSynchronize, Fault::Kind::kStop, 0});
  EXPECT_EQ(Update(3, 1, ids).code(), Code::kUnavailable);
  EXPECT_EQ(Update(3, 1, ids).code(), Code::kUnavailable);
  EXPECT_THAT(Update(3, 2, {RowId{150}}), IsOk());
}

TEST_F(StoppingGpu, TakesTheIdsOfItsZchTablesAlong) {
  const TableSpec spec = SpecOfAnyIds(5);
  ASSERT_THAT(cluster_.Install({PlaceOn(cluster_, spec, 0), PlaceOn(cluster_, Spec(2), 1)}),
              IsOk());
  std::mt19937 random(1);
  const auto update = [&](std::uint64_t seq) {
    UpdateBatch header = Header(seq);
    header.plan_version = cluster_.plan()->version();
    return cluster_.Update(kFirst, Pack(header, {Gradients(spec, {RowId{-5}}, random)})).status();
  };
  ASSERT_THAT(update(1), IsOk());
  // In the touch itself: by then the update is recorded as applied.
  cluster_.gpu(0, 0)->Inject({Fault::At::kSynchronize, Fault::Kind::kStop, 0});
  EXPECT_EQ(update(2).code(), Code::kUnavailable);
  EXPECT_EQ(update(2).code(), Code::kUnavailable);
  const auto lookup = cluster_.Lookup(kFirst, Pack(LookupBatch{}, {Bags(spec, {RowId{-5}}, {1})}));
  EXPECT_EQ(lookup.status().code(), Code::kUnavailable);
  const auto explained = testing::Await<IdExplanation>(
      [&](ExplainDone done) { cluster_.node(0).ExplainId(spec.id, RowId{-5}, std::move(done)); });
  EXPECT_EQ(explained.status().code(), Code::kUnavailable);
  const auto survey = testing::Await<zch::Survey>(
      [&](SurveyDone done) { cluster_.node(0).SurveyTable(spec.id, 1, std::move(done)); });
  EXPECT_EQ(survey.status().code(), Code::kUnavailable);
  const auto swept = testing::Await<SweepResult>([&](SweepDone done) {
    cluster_.node(0).SweepTable({spec.id, {ZchSweep::Rule::kIdle, 5, 5}, {{0, spec.rows}}},
                                absl::InfiniteFuture(), std::move(done));
  });
  EXPECT_EQ(swept.status().code(), Code::kUnavailable);
  const absl::Status read = cluster_.node(0).ReadRows(
      {.table = spec.id, .row_end = spec.rows, .row_ids = {}, .with_state = true},
      [](Buffer) { return absl::OkStatus(); });
  EXPECT_EQ(read.code(), Code::kUnavailable);
  EXPECT_THAT(Lookup(2), IsOk());
}

TEST_F(StoppingGpu, WithoutMemoryTakesNoTableAndKeepsTheOthers) {
  cluster_.gpu(0, 0)->Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, 0});
  const absl::Status status = cluster_.Install(
      {PlaceOn(cluster_, Spec(1), 0), PlaceOn(cluster_, Spec(2), 1),
       Place(cluster_, Spec(3), ShardingType::kRowWise), PlaceOn(cluster_, Spec(4), 0)});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(Lookup(1), IsOk());
  EXPECT_THAT(Update(3, 1, {RowId{5}, RowId{150}}), IsOk());
}

TEST(ShardNodeCreate, WantsAGpuForEveryGpuDeviceAndForNoOther) {
  BufferPool pool;
  gpu::SimulatedDevice device;
  const std::int64_t bytes = 1 << 20;
  const auto create = [&](DeviceKind kind, std::vector<gpu::Device*> gpus) {
    ShardNodeOptions options;
    options.devices = {{kind, bytes}};
    options.gpus = std::move(gpus);
    return ShardNode::Create(std::move(options), pool).status();
  };
  EXPECT_THAT(create(DeviceKind::kGpu, {&device}), IsOk());
  EXPECT_THAT(create(DeviceKind::kCpu, {nullptr}), IsOk());
  EXPECT_EQ(create(DeviceKind::kGpu, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(create(DeviceKind::kGpu, {nullptr}).code(), Code::kInvalidArgument);
  EXPECT_EQ(create(DeviceKind::kCpu, {&device}).code(), Code::kInvalidArgument);
  EXPECT_EQ(create(DeviceKind::kGpu, {&device, &device}).code(), Code::kInvalidArgument);
  ShardNodeOptions cpus;
  cpus.devices = {{DeviceKind::kCpu, bytes}};
  cpus.collectives = Collectives::kPeer;
  EXPECT_EQ(ShardNode::Create(cpus, pool).status().code(), Code::kInvalidArgument);
  cpus.collectives = Collectives::kHost;
  cpus.gpu_cache_bytes = 1;
  EXPECT_EQ(ShardNode::Create(cpus, pool).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace embla
