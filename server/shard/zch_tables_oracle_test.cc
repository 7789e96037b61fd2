// ZCH tables under random plans, on 1 to 3 nodes of 1 to 4 devices, with buckets that move between
// the steps, against a map of ids by std::unordered_map (server/zch/slot_map_model_test_support.h)
// beside one plain array of rows: who has which row, weights, optimizer state and unpooled lookups
// must be equal bit for bit, pooled lookups within rounding.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/plan/id_rows.h"
#include "core/plan/names.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/gpu_kernels.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/random_table.h"
#include "server/shard/testing/table_model.h"
#include "server/shard/testing/unit_moves.h"
#include "server/zch/slot_map_model_test_support.h"

namespace embla::testing {
namespace {

using ::testing::ElementsAreArray;

zch::SlotMapOptions OptionsOf(const TableSpec& spec) {
  zch::SlotMapOptions options;
  options.buckets = spec.zch->buckets;
  options.capacity = spec.rows;
  options.reserved_lanes = spec.zch->reserved_lanes;
  options.policy = spec.zch->policy;
  options.distance_exponent = spec.zch->distance_exponent;
  options.ttl_ticks = spec.zch->ttl_steps;
  options.evict_unexpired = spec.zch->evict_unexpired;
  options.admission = spec.zch->admission;
  options.admission_count = spec.zch->admission_count;
  options.admission_probability = spec.zch->admission_probability;
  options.seed = spec.seed;
  return options;
}

// Events in the rounds of a test, so that it is not easier than it looks.
struct Coverage {
  std::size_t evictions = 0;
  std::size_t dropped = 0;  // Gradients of ids without a row.
  std::size_t unseen = 0;   // Lookups of such ids.
  std::size_t moves = 0;    // Moves of buckets, also failed ones.
  std::size_t swept = 0;    // Ids that sweeps took the rows from.
};

// One ZCH table without slices.
class ZchModel {
 public:
  ZchModel(const TableSpec& spec, Coverage& coverage)
      : ids_(OptionsOf(spec)), rows_(spec), coverage_(coverage) {}

  const TableSpec& spec() const { return rows_.spec(); }
  TableModel& rows() { return rows_; }
  std::size_t residents() const { return ids_.entries().size(); }
  std::optional<std::int64_t> RowOf(RowId id) const {
    const auto it = ids_.entries().find(ToInt(id));
    if (it == ids_.entries().end()) return std::nullopt;
    return static_cast<std::int64_t>(ids_.SlotOf(it->second));
  }

  // A row that an id lost.
  struct Evicted {
    zch::Eviction eviction;
    std::vector<std::byte> weights;
    std::vector<float> state;
  };
  // By id and step.
  using Evictions = std::map<std::pair<std::int64_t, std::uint64_t>, Evicted>;
  const Evictions& evictions() const { return evictions_; }

  void Sweep(const ZchSweep& sweep) {
    std::vector<zch::Eviction> evicted;
    const bool expired = sweep.rule == ZchSweep::Rule::kExpired;
    ids_.Sweep(
        expired ? zch::EvictionReason::kExpired : zch::EvictionReason::kIdle, sweep.step,
        [&](const zch::ModelMap::Entry& entry) {
          return expired ? entry.word <= sweep.step : entry.last < sweep.before_step;
        },
        evicted);
    coverage_.swept += evicted.size();
    Keep(evicted);
  }

  struct Gradient {
    RowId id;
    std::vector<float> values;
    std::uint32_t ttl_steps = 0;
  };
  void Update(const std::vector<Gradient>& gradients, std::uint64_t step) {
    std::map<std::int64_t, std::uint32_t> ttl_of;
    for (const Gradient& gradient : gradients) {
      const std::uint32_t own = gradient.ttl_steps;
      std::uint32_t& longest = ttl_of[ToInt(gradient.id)];
      longest = std::max(longest, own == 0 ? spec().zch->ttl_steps : own);
    }
    std::vector<RowId> ids;
    std::vector<std::uint32_t> ttls;
    for (const auto& [id, ttl] : ttl_of) {
      ids.push_back(RowId{id});
      ttls.push_back(ttl);
    }
    const zch::Answer answer =
        ids_.Apply({ids, {}, ttls, {step, static_cast<std::uint32_t>(step)}});
    coverage_.evictions += answer.evictions.size();
    Keep(answer.evictions);
    std::map<std::int64_t, std::int64_t> row_of;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      row_of[ToInt(ids[i])] = static_cast<std::int64_t>(answer.slots[i]);
      if (answer.outcomes[i] == zch::Outcome::kInserted) {
        rows_.Begin(row_of[ToInt(ids[i])], ids[i]);
      }
    }
    for (const Gradient& gradient : gradients) {
      const std::int64_t row = row_of.at(ToInt(gradient.id));
      coverage_.dropped += row < 0 ? 1 : 0;
      if (row >= 0) rows_.Add(row, gradient.values);
    }
    rows_.Step(step);
  }

  std::vector<float> Read(RowId id, ColumnRange columns) const {
    if (const auto row = RowOf(id)) return rows_.Decoded(*row, columns);
    ++coverage_.unseen;
    const ZchSpec& zch = *spec().zch;
    if (zch.reserved_lanes > 0) return rows_.Decoded(ReservedRow(id), columns);
    if (zch.unseen == zch::Unseen::kZero) return std::vector<float>(columns.size(), 0.0f);
    return rows_.Initial(zch.unseen == zch::Unseen::kDefault ? zch::kSharedRowId : id, columns);
  }

 private:
  void Keep(const std::vector<zch::Eviction>& evictions) {
    const ColumnRange columns{0, spec().dim};
    for (const zch::Eviction& eviction : evictions) {
      const auto row = static_cast<std::int64_t>(eviction.slot);
      evictions_[{ToInt(eviction.id), eviction.step}] = {eviction, rows_.Weights(row, columns),
                                                         rows_.State(row, columns)};
    }
  }

  std::int64_t ReservedRow(RowId id) const {
    const auto groups = static_cast<std::uint32_t>(spec().rows / 64 / spec().zch->buckets);
    const zch::Place place = zch::PlaceOf(id, spec().zch->buckets, groups);
    const std::uint64_t high = SplitMix64(zch::HashId(id)) >> 32;
    const std::uint64_t reserved = spec().zch->reserved_lanes;
    return (std::int64_t{place.bucket} * groups + place.group) * 64 + 64 -
           static_cast<std::int64_t>(reserved - ((high * reserved) >> 32));
  }

  zch::ModelMap ids_;
  TableModel rows_;
  Evictions evictions_;
  Coverage& coverage_;
};

LocalCluster::Options ClusterOf(std::uint32_t seed, std::mt19937& random) {
  LocalCluster::Options options = RandomCluster(seed, random);
  options.gpu_kernels = GpuKernels();
  return options;
}

class ZchOracle {
 public:
  ZchOracle(std::uint32_t seed, Coverage& coverage)
      : random_(seed), cluster_(ClusterOf(seed, random_)), coverage_(coverage) {}

  void Run() {
    const TableSpec spec = RandomSpec();
    const auto type =
        Pick({ShardingType::kTableWise, ShardingType::kRowWise, ShardingType::kTableRowWise});
    const absl::StatusOr<TablePlan> table =
        PlaceTable(spec, {.sharding = type}, cluster_.specs(), {});
    ASSERT_THAT(table, IsOk());
    model_ = std::make_unique<ZchModel>(spec, coverage_);
    ASSERT_THAT(cluster_.Install({*table}), IsOk());
    moves_ = std::make_unique<UnitMoves>(cluster_, *table);
    for (std::uint64_t step = 1; step <= 10; ++step) {
      Update(step);
      MoveBuckets();
      if (random_() % 3 == 0) Sweep(step);
      if (step % 4 == 0) RefusedUpdate(step);
      CompareLookups();
      if (::testing::Test::HasFailure()) return;
    }
    CompareRows();
    if (model_->spec().zch->eviction_buffer_bytes != 0) CompareEvictions();
  }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return embla::testing::Pick(random_, values);
  }

  TableSpec RandomSpec() {
    TableSpec spec = embla::testing::RandomNumerics(random_);
    spec.id = TableId{1};
    spec.name = "users";
    spec.dim = Pick({1u, 4u, 12u, 33u});
    ZchSpec zch;
    zch.buckets = Pick({1u, 3u, 6u});
    zch.policy =
        Pick({zch::Policy::kLru, zch::Policy::kLfu, zch::Policy::kDistanceLfu, zch::Policy::kTtl});
    zch.distance_exponent = Pick({1u, 2u});
    if (zch.policy == zch::Policy::kTtl) zch.ttl_steps = Pick({1u, 3u});
    zch.evict_unexpired = random_() % 2 == 0;
    zch.admission =
        Pick({zch::Admission::kAll, zch::Admission::kCount, zch::Admission::kProbability});
    zch.admission_count = Pick({1u, 2u});
    zch.admission_probability = 0.5f;
    zch.unseen = Pick({zch::Unseen::kInitial, zch::Unseen::kDefault, zch::Unseen::kZero});
    if (zch.unseen == zch::Unseen::kDefault) zch.reserved_lanes = Pick({0u, 3u});
    if (random_() % 2 == 0) zch.eviction_buffer_bytes = std::uint64_t{1} << 26;
    spec.zch = zch;
    spec.rows = zch.buckets * Pick({64u, 128u});
    spec.SetDefaults();
    return spec;
  }

  // Units of the table are its buckets, in order.
  NodeId NodeOf(RowId id) const {
    return moves_->OwnerOf(static_cast<std::size_t>(IdRows(model_->spec()).BucketOf(id)));
  }
  std::set<NodeId> Nodes() const {
    std::set<NodeId> nodes;
    for (std::size_t unit = 0; unit < moves_->units().size(); ++unit) {
      nodes.insert(moves_->OwnerOf(unit));
    }
    return nodes;
  }

  // Some buckets go to other nodes, some stay where they are after all.
  void MoveBuckets() {
    const std::size_t nodes = cluster_.specs().size();
    if (nodes == 1) return;
    for (std::size_t unit = 0; unit < moves_->units().size(); ++unit) {
      const NodeId target{1 + static_cast<std::uint32_t>(random_() % nodes)};
      if (random_() % 3 != 0 || target == moves_->OwnerOf(unit)) continue;
      const auto device =
          static_cast<std::uint32_t>(random_() % cluster_.specs().front().devices.size());
      const absl::Status moved = random_() % 4 == 0 ? moves_->MoveInVain(unit, target, device)
                                                    : moves_->Move(unit, target, device);
      ASSERT_THAT(moved, IsOk());
      ++coverage_.moves;
    }
  }

  // Every bucket is swept once, wherever it is.
  void Sweep(std::uint64_t step) {
    const TableSpec& spec = model_->spec();
    ZchSweep sweep;
    const bool ttl = spec.zch->policy == zch::Policy::kTtl;
    sweep.rule = ttl && random_() % 2 == 0 ? ZchSweep::Rule::kExpired : ZchSweep::Rule::kIdle;
    sweep.step = step;
    sweep.before_step = step - std::min<std::uint64_t>(step, random_() % 4);
    model_->Sweep(sweep);
    std::int64_t swept = 0;
    for (const NodeId node : Nodes()) {
      const auto result = Await<SweepResult>([&](SweepDone done) {
        cluster_.node(node).SweepTable({spec.id, sweep, {{0, spec.rows}}}, absl::InfiniteFuture(),
                                       std::move(done));
      });
      ASSERT_THAT(result, IsOk());
      for (const RowInterval& rows : result->swept) swept += rows.end - rows.begin;
    }
    EXPECT_EQ(swept, spec.rows);
  }

  // The nodes' streams must have the model's evictions, bit for bit.
  void CompareEvictions() {
    std::size_t read = 0;
    for (std::uint32_t node = 1; node <= cluster_.specs().size(); ++node) {
      const auto log = cluster_.node(NodeId{node}).Evictions(model_->spec().id);
      if (!log.ok()) continue;  // Nothing of the table has been there.
      EvictionLog::Piece piece = (*log)->Read(0);
      for (; piece.rows != nullptr; piece = (*log)->Read(piece.next)) {
        EXPECT_EQ(piece.missed, 0u);
        read += piece.rows->evictions.size();
        ComparePiece(*piece.rows);
      }
    }
    EXPECT_EQ(read, model_->evictions().size());
  }

  void ComparePiece(const EvictedRows& rows) {
    const absl::StatusOr<RowBlock> block = DecodeRowBlock(rows.row_block.bytes());
    ASSERT_THAT(block, IsOk());
    ASSERT_EQ(block->rows.size(), rows.evictions.size());
    const std::size_t row_bytes = RowBytes(block->shape.dtype, model_->spec().dim);
    const std::size_t floats = block->shape.state_floats;
    for (std::size_t i = 0; i < rows.evictions.size(); ++i) {
      const zch::Eviction& eviction = rows.evictions[i];
      ASSERT_EQ(block->rows[i], eviction.id);
      const auto known = model_->evictions().find({ToInt(eviction.id), eviction.step});
      ASSERT_NE(known, model_->evictions().end()) << "id " << ToInt(eviction.id);
      EXPECT_EQ(eviction, known->second.eviction);
      EXPECT_EQ(std::memcmp(known->second.weights.data(), block->weights.data() + i * row_bytes,
                            row_bytes),
                0);
      EXPECT_THAT(block->state.subspan(i * floats, floats), ElementsAreArray(known->second.state));
    }
  }

  // Some come often; in all about three times what the table can hold.
  RowId RandomId() {
    const std::uint64_t ids = random_() % 2 == 0 ? 20 : model_->spec().rows * 3;
    const std::uint64_t number = random_() % ids;
    constexpr std::int64_t kExtremes[] = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                          std::numeric_limits<std::int64_t>::max()};
    if (number < 4) return RowId{kExtremes[number]};
    return RowId{static_cast<std::int64_t>(number * 0x9e3779b97f4a7c15u)};
  }

  std::vector<float> RandomRow() {
    std::vector<float> row(model_->spec().dim);
    for (float& value : row) value = uniform_(random_);
    return row;
  }

  UpdateBatch HeaderOf(std::uint64_t seq, std::uint64_t step) const {
    UpdateBatch header;
    header.plan_version = cluster_.plan()->version();
    header.session = SessionId{7};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{seq};
    header.step = step;
    header.wire_dtype = DType::kFloat32;
    return header;
  }

  UpdatePartData EmptyPart() const {
    UpdatePartData data;
    data.part.table = model_->spec().id;
    data.part.column_end = model_->spec().dim;
    return data;
  }

  // A gradient per id, and one per bag; each node gets its ids, in order.
  void Update(std::uint64_t step) {
    std::vector<ZchModel::Gradient> gradients;
    std::map<NodeId, std::vector<UpdatePartData>> parts;
    std::map<NodeId, std::vector<float>> rows, bag_rows;
    const bool ttl = model_->spec().zch->policy == zch::Policy::kTtl;
    const std::uint32_t row_ttl = ttl ? Pick({0u, 1u, 5u}) : 0;
    const std::uint32_t bag_ttl = ttl ? Pick({0u, 2u}) : 0;
    for (const NodeId node : Nodes()) {
      parts[node] = {EmptyPart(), EmptyPart()};
      parts[node][0].part.ttl_steps = row_ttl;
      parts[node][1].part.ttl_steps = bag_ttl;
    }
    const std::size_t ids = random_() % 400;
    for (std::size_t i = 0; i < ids; ++i) {
      gradients.push_back({RandomId(), RandomRow(), row_ttl});
      const RowId id = gradients.back().id;
      const std::vector<float>& values = gradients.back().values;
      parts[NodeOf(id)][0].ids.push_back(id);
      std::vector<float>& of_node = rows[NodeOf(id)];
      of_node.insert(of_node.end(), values.begin(), values.end());
    }
    for (std::size_t bag = random_() % 20; bag > 0; --bag) {
      const std::vector<float> values = RandomRow();
      for (auto& [node, data] : parts) {
        data[1].lengths.push_back(0);
        bag_rows[node].insert(bag_rows[node].end(), values.begin(), values.end());
      }
      for (std::size_t i = random_() % 5; i > 0; --i) {
        const RowId id = RandomId();
        gradients.push_back({id, values, bag_ttl});
        parts[NodeOf(id)][1].ids.push_back(id);
        ++parts[NodeOf(id)][1].lengths.back();
      }
    }
    model_->Update(gradients, step);
    for (auto& [node, data] : parts) {
      data[0].gradients = EncodeRows(rows[node], model_->spec().dim, DType::kFloat32);
      data[1].part.form = UpdatePart::Form::kBags;
      data[1].part.pooling = Pooling::kSum;
      data[1].gradients = EncodeRows(bag_rows[node], model_->spec().dim, DType::kFloat32);
      if (data[0].ids.empty() && data[1].ids.empty()) continue;
      for (int attempt = 0; attempt < 2; ++attempt) {  // The second one must change nothing.
        const auto result = cluster_.Update(node, Pack(HeaderOf(step, step), data));
        ASSERT_THAT(result, IsOk());
        EXPECT_EQ(result->duplicate, attempt == 1);
      }
    }
  }

  // With a NaN: nothing of it may stay behind, not even a touch.
  void RefusedUpdate(std::uint64_t step) {
    const NodeId node = *Nodes().begin();
    UpdatePartData data = EmptyPart();
    for (int i = 0; i < 50; ++i) {
      const RowId id = RandomId();
      if (NodeOf(id) == node) data.ids.push_back(id);
    }
    if (data.ids.empty()) return;
    data.gradients = EncodeRows(std::vector<float>(data.ids.size() * model_->spec().dim,
                                                   std::numeric_limits<float>::quiet_NaN()),
                                model_->spec().dim, DType::kFloat32);
    UpdateBatch header = HeaderOf(200 + step, step + 1);
    header.first_incomplete = UpdateSeq{step};
    const auto result = cluster_.Update(node, Pack(header, {data}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  }

  void CompareLookups() {
    for (const NodeId node : Nodes()) {
      std::vector<LookupPartData> parts = {RandomLookup(node, Pooling::kNone),
                                           RandomLookup(node, Pooling::kSum)};
      LookupBatch header;
      header.wire_dtype = DType::kFloat32;
      const auto result = cluster_.Lookup(node, Pack(header, parts), Pick({0, 1, 200}));
      ASSERT_THAT(result, IsOk());
      const auto* at = reinterpret_cast<const float*>(result->rows.data());
      for (const RowId id : parts[0].ids) {
        const std::vector<float> expected = model_->Read(id, ColumnsOf(parts[0]));
        ASSERT_EQ(std::memcmp(at, expected.data(), expected.size() * sizeof(float)), 0)
            << "id " << ToInt(id);
        at += expected.size();
      }
      ComparePooled(parts[1], at);
    }
  }

  static ColumnRange ColumnsOf(const LookupPartData& data) {
    return {data.part.column_begin, data.part.column_end};
  }

  LookupPartData RandomLookup(NodeId node, Pooling pooling) {
    LookupPartData data;
    data.part.table = model_->spec().id;
    data.part.pooling = pooling;
    data.part.column_begin = random_() % model_->spec().dim;
    data.part.column_end = model_->spec().dim;
    for (std::size_t row = random_() % 60; row > 0; --row) {
      std::uint32_t kept = 0;
      for (std::size_t i = pooling == Pooling::kNone ? 1 : random_() % 6; i > 0; --i) {
        const RowId id = RandomId();
        if (NodeOf(id) != node) continue;
        data.ids.push_back(id);
        ++kept;
      }
      if (pooling != Pooling::kNone) data.lengths.push_back(kept);
    }
    if (pooling == Pooling::kSum && random_() % 2 == 0) {
      for (std::size_t i = 0; i < data.ids.size(); ++i) data.weights.push_back(uniform_(random_));
    }
    return data;
  }

  void ComparePooled(const LookupPartData& data, const float* at) const {
    std::size_t position = 0;
    for (const std::uint32_t length : data.lengths) {
      const std::uint32_t columns = ColumnsOf(data).size();
      std::vector<double> sum(columns, 0.0), magnitude(columns, 0.0);
      for (std::uint32_t i = 0; i < length; ++i, ++position) {
        const std::vector<float> row = model_->Read(data.ids[position], ColumnsOf(data));
        const double weight = data.weights.empty() ? 1.0 : data.weights[position];
        for (std::uint32_t c = 0; c < columns; ++c) {
          sum[c] += weight * row[c];
          magnitude[c] += std::abs(weight * row[c]);
        }
      }
      for (std::uint32_t c = 0; c < columns; ++c) {
        ASSERT_NEAR(at[c], sum[c], (length + 4) * std::ldexp(magnitude[c], -23) + 1e-37);
      }
      at += columns;
    }
  }

  // All residents, each once, with the bits of the model's row; and the same by their ids.
  void CompareRows() {
    std::map<std::int64_t, int> seen;
    for (const NodeId node : Nodes()) CompareNodeRows(node, {}, seen);
    EXPECT_EQ(seen.size(), model_->residents());
    std::map<std::int64_t, int> again;
    for (const NodeId node : Nodes()) {
      std::vector<RowId> ids = {RowId{123456789}};  // An id without a row.
      for (const auto& [id, times] : seen) ids.push_back(RowId{id});
      CompareNodeRows(node, ids, again);
    }
    EXPECT_EQ(again, seen);
    for (const auto& [id, times] : seen) CompareExplanation(RowId{id});
    CompareExplanation(RowId{123456789});
  }

  void CompareExplanation(RowId id) {
    const auto found = Await<IdExplanation>([&](ExplainDone done) {
      cluster_.node(NodeOf(id)).ExplainId(model_->spec().id, id, std::move(done));
    });
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->row, model_->RowOf(id));
    EXPECT_EQ(found->bucket, IdRows(model_->spec()).BucketOf(id));
    for (const NodeId node : Nodes()) {
      if (node == NodeOf(id)) continue;
      const auto elsewhere = Await<IdExplanation>([&](ExplainDone done) {
        cluster_.node(node).ExplainId(model_->spec().id, id, std::move(done));
      });
      EXPECT_EQ(elsewhere.status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }

  void CompareNodeRows(NodeId node, const std::vector<RowId>& ids,
                       std::map<std::int64_t, int>& seen) {
    const TableSpec& spec = model_->spec();
    const absl::Status status =
        cluster_.node(node).ReadRows({spec.id, 0, spec.rows, ids, true}, [&](Buffer encoded) {
          const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
          if (!block.ok()) return block.status();
          for (const RowId id : block->rows) EXPECT_EQ(++seen[ToInt(id)], 1) << ToInt(id);
          CompareBlock(*block);
          return absl::OkStatus();
        });
    ASSERT_THAT(status, IsOk());
  }

  void CompareBlock(const RowBlock& block) {
    const ColumnRange columns{0, model_->spec().dim};
    const std::size_t row_bytes = RowBytes(block.shape.dtype, columns.size());
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const std::optional<std::int64_t> row = model_->RowOf(block.rows[i]);
      ASSERT_TRUE(row.has_value()) << "id " << ToInt(block.rows[i]);
      const std::vector<std::byte> weights = model_->rows().Weights(*row, columns);
      ASSERT_EQ(std::memcmp(weights.data(), block.weights.data() + i * row_bytes, row_bytes), 0)
          << "id " << ToInt(block.rows[i]);
      ASSERT_THAT(block.state.subspan(i * block.shape.state_floats, block.shape.state_floats),
                  ElementsAreArray(model_->rows().State(*row, columns)));
    }
  }

  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0f, 1.0f};
  LocalCluster cluster_;
  std::unique_ptr<UnitMoves> moves_;
  std::unique_ptr<ZchModel> model_;
  Coverage& coverage_;
};

TEST(ZchTablesOracle, EveryPlanGivesTheSameRowsAsOneMapAndOneArray) {
  const std::vector<std::uint32_t> seeds = TestSeeds(60);
  Coverage coverage;
  for (const std::uint32_t seed : seeds) {
    SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
    ZchOracle(seed, coverage).Run();
    if (HasFailure()) return;
  }
  if (seeds.size() == 1) return;
  EXPECT_GT(coverage.evictions, 1000u);
  EXPECT_GT(coverage.dropped, 1000u);
  EXPECT_GT(coverage.unseen, 1000u);
  EXPECT_GT(coverage.moves, 100u);
  EXPECT_GT(coverage.swept, 1000u);
}

}  // namespace
}  // namespace embla::testing
