// Random tables under random plans of all seven sharding types, on 1 to 3 nodes of 1 to 4 devices,
// against a table that is one plain array: rows, optimizer state and unpooled lookups must be equal
// bit for bit, pooled lookups within rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/plan/slice_map.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/combine.h"
#include "kernels/convert.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/random_table.h"
#include "server/shard/testing/table_model.h"
#include "server/table/element.h"

namespace embla::testing {
namespace {

// A trainer's input for one feature: bags of ids, and a gradient per id or per bag.
struct Feature {
  bool bags = false;
  Pooling pooling = Pooling::kNone;
  std::vector<RowId> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> weights;
  std::vector<float> gradients;  // fp32, whole rows, rounded to the wire's format already.
};

// A node's part of a table's columns: the ids of rows outside of it are filtered out.
struct NodeBlock {
  NodeId node;
  ColumnRange columns;
  SliceMap::ColumnBlock rows;
  bool has_first_row = false;  // Ids outside the table go here.
};

class Oracle {
 public:
  explicit Oracle(std::uint32_t seed) : random_(seed), cluster_(RandomCluster(seed, random_)) {}

  void Run() {
    MakeTables();
    if (::testing::Test::HasFatalFailure()) return;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      random_() % 3 == 0 ? Write(step) : Update(step);
      if (::testing::Test::HasFatalFailure()) return;
      CompareLookups();
      if (::testing::Test::HasFatalFailure()) return;
    }
    CompareRows();
  }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return embla::testing::Pick(random_, values);
  }

  TableSpec RandomSpec(std::uint32_t number) {
    TableSpec spec = embla::testing::RandomNumerics(random_);
    spec.id = TableId{number + 1};
    spec.name = "t" + std::to_string(number);
    spec.rows = Pick({1, 7, 64, 300});
    spec.dim = Pick({1u, 4u, 8u, 12u, 20u, 33u});
    spec.bounds = Pick({BoundsMode::kError, BoundsMode::kIgnore});
    spec.optimizer.gradient_clip = Pick({0.0f, 0.5f});
    if (random_() % 2 == 0) {
      spec.optimizer.weight_decay = 0.01f;
      spec.optimizer.weight_decay_mode = WeightDecayMode::kDecoupled;
    }
    spec.SetDefaults();
    return spec;
  }

  void MakeTables() {
    std::vector<TablePlan> tables;
    const std::uint32_t count = 1 + random_() % 4;
    for (std::uint32_t t = 0; t < count; ++t) {
      const TableSpec spec = RandomSpec(t);
      PlacementRequest request;
      request.sharding = static_cast<ShardingType>(1 + random_() % 7);
      request.min_partition = 4;
      const absl::StatusOr<TablePlan> table =
          PlaceTable(spec, request, cluster_.specs(), TableList(tables));
      ASSERT_THAT(table, IsOk());
      trace_ += " " + spec.name + "=" + std::string(NameOf(request.sharding)) + "/" +
                std::string(NameOf(spec.dtype)) + "/" + std::string(NameOf(spec.optimizer.kind)) +
                "/" + std::to_string(spec.rows) + "x" + std::to_string(spec.dim);
      tables.push_back(*table);
      models_.push_back(std::make_unique<TableModel>(spec));
      blocks_.push_back(BlocksOf(*table));
    }
    const absl::Status status = cluster_.Install(tables);
    ASSERT_THAT(status, IsOk());
    for (const TablePlan& table : tables) {
      if (table.replicated()) cluster_.AwaitCopies(table.spec.id);
    }
  }

  static std::vector<NodeBlock> BlocksOf(const TablePlan& table) {
    std::map<NodeId, std::vector<Slice>> by_node;
    for (const Slice& slice : table.primary()) by_node[slice.device.node].push_back(slice);
    std::vector<NodeBlock> blocks;
    for (const auto& [node, slices] : by_node) {
      // Columns that have the same rows on this node are one part, whatever its devices do.
      std::vector<Slice> merged = slices;
      for (Slice& slice : merged) slice.device.index = 0;
      const SliceMap map = SliceMap::Build(merged);
      for (const SliceMap::ColumnBlock& block : map.blocks()) {
        const bool first = block.OwnerOf(RowId{0}) != SliceMap::kNotCovered;
        if (!blocks.empty() && blocks.back().node == node &&
            blocks.back().columns.end == block.column_begin &&
            SameRows(blocks.back().rows, block)) {
          blocks.back().columns.end = block.column_end;
        } else {
          blocks.push_back({node, {block.column_begin, block.column_end}, block, first});
        }
      }
    }
    return blocks;
  }

  static bool SameRows(const SliceMap::ColumnBlock& a, const SliceMap::ColumnBlock& b) {
    return a.row_borders.front() == b.row_borders.front() &&
           a.row_borders.back() == b.row_borders.back();
  }

  bool Here(const NodeBlock& block, const TableModel& model, RowId id) const {
    if (!model.Has(ToInt(id))) return block.has_first_row;
    return block.rows.OwnerOf(id) != SliceMap::kNotCovered;
  }

  RowId RandomId(const TableModel& model) {
    if (model.spec().bounds == BoundsMode::kIgnore && random_() % 16 == 0) {
      return Pick({RowId{-1}, RowId{model.spec().rows}, RowId{INT64_MAX}, RowId{INT64_MIN}});
    }
    return RowId{static_cast<std::int64_t>(random_() % model.spec().rows)};
  }

  Feature RandomFeature(const TableModel& model, DType wire) {
    Feature feature;
    feature.bags = random_() % 2 == 0;
    const std::size_t rows = random_() % 40;
    if (feature.bags) {
      feature.pooling = Pick({Pooling::kSum, Pooling::kMean});
      for (std::size_t b = 0; b < rows; ++b) {
        feature.lengths.push_back(random_() % 6);
        for (std::uint32_t i = 0; i < feature.lengths.back(); ++i) {
          feature.ids.push_back(RandomId(model));
        }
      }
      if (feature.pooling == Pooling::kSum && random_() % 2 == 0) {
        for (std::size_t i = 0; i < feature.ids.size(); ++i) {
          feature.weights.push_back(uniform_(random_));
        }
      }
    } else {
      const std::size_t ids = random_() % 8 == 0 ? 700 : rows;  // Several combine pieces.
      for (std::size_t i = 0; i < ids; ++i) feature.ids.push_back(RandomId(model));
    }
    const std::uint32_t dim = model.spec().dim;
    const std::size_t gradient_rows = feature.bags ? feature.lengths.size() : feature.ids.size();
    std::vector<float> exact(gradient_rows * dim);
    for (float& value : exact) value = random_() % 8 == 0 ? -0.0f : uniform_(random_);
    feature.gradients.resize(exact.size());
    const std::vector<std::byte> encoded = EncodeRows(exact, dim, wire);
    kernels::Convert({encoded.data(), RowBytes(wire, dim), ElementOf(wire)},
                     {feature.gradients.data(), dim * sizeof(float), kernels::Element::kFloat32},
                     gradient_rows, dim);
    return feature;
  }

  void AddToModel(TableModel& model, const Feature& feature) const {
    const std::uint32_t dim = model.spec().dim;
    const auto add = [&](std::size_t position, std::size_t gradient, float factor) {
      const std::int64_t row = ToInt(feature.ids[position]);
      if (!model.Has(row)) return;
      std::vector<float> values(feature.gradients.begin() + gradient * dim,
                                feature.gradients.begin() + (gradient + 1) * dim);
      const float clip = model.spec().optimizer.gradient_clip;
      for (float& value : values) {
        if (clip > 0) value = std::clamp(value, -clip, clip);
        value *= factor;
      }
      model.Add(row, std::move(values));
    };
    if (!feature.bags) {
      for (std::size_t i = 0; i < feature.ids.size(); ++i) add(i, i, 1.0f);
      return;
    }
    std::size_t position = 0;
    for (std::size_t b = 0; b < feature.lengths.size(); ++b) {
      for (std::uint32_t i = 0; i < feature.lengths[b]; ++i, ++position) {
        const float factor = feature.pooling == Pooling::kMean
                                 ? 1.0f / static_cast<float>(feature.lengths[b])
                             : feature.weights.empty() ? 1.0f
                                                       : feature.weights[position];
        add(position, b, factor);
      }
    }
  }

  // Whether nodes lack columns that the optimizer's statistic needs.
  bool NeedsCombined(std::size_t table) const {
    const TableSpec& spec = models_[table]->spec();
    return NeedsRowStatistic(spec.optimizer) &&
           std::any_of(blocks_[table].begin(), blocks_[table].end(),
                       [&](const NodeBlock& block) { return block.columns.size() != spec.dim; });
  }

  static std::vector<float> Cut(const std::vector<float>& rows, std::uint32_t dim,
                                ColumnRange columns) {
    std::vector<float> cut;
    for (std::size_t row = 0; row < rows.size() / dim; ++row) {
      cut.insert(cut.end(), rows.begin() + row * dim + columns.begin,
                 rows.begin() + row * dim + columns.end);
    }
    return cut;
  }

  UpdatePartData PartOf(std::size_t table, const Feature& feature, const NodeBlock& block,
                        DType wire) const {
    const TableModel& model = *models_[table];
    const std::uint32_t dim = model.spec().dim;
    UpdatePartData data;
    data.part.table = model.spec().id;
    data.part.column_begin = block.columns.begin;
    data.part.column_end = block.columns.end;
    std::vector<float> gradients;
    if (feature.bags) {
      // Lengths shrink where a bag's rows are on several nodes, so means become weighted sums.
      const bool whole = Whole(feature, block, model);
      data.part.form = UpdatePart::Form::kBags;
      data.part.pooling = whole ? feature.pooling : Pooling::kSum;
      gradients = feature.gradients;
      std::size_t position = 0;
      for (const std::uint32_t length : feature.lengths) {
        data.lengths.push_back(0);
        for (std::uint32_t i = 0; i < length; ++i, ++position) {
          if (!Here(block, model, feature.ids[position])) continue;
          ++data.lengths.back();
          data.ids.push_back(feature.ids[position]);
          if (!feature.weights.empty()) data.weights.push_back(feature.weights[position]);
          if (!whole && feature.pooling == Pooling::kMean) {
            data.weights.push_back(1.0f / static_cast<float>(length));
          }
        }
      }
    } else {
      for (std::size_t i = 0; i < feature.ids.size(); ++i) {
        if (!Here(block, model, feature.ids[i])) continue;
        data.ids.push_back(feature.ids[i]);
        gradients.insert(gradients.end(), feature.gradients.begin() + i * dim,
                         feature.gradients.begin() + (i + 1) * dim);
      }
    }
    data.gradients = EncodeRows(Cut(gradients, dim, block.columns), block.columns.size(), wire);
    return data;
  }

  bool Whole(const Feature& feature, const NodeBlock& block, const TableModel& model) const {
    return std::all_of(feature.ids.begin(), feature.ids.end(),
                       [&](RowId id) { return Here(block, model, id); });
  }

  UpdatePartData CombinedPart(std::size_t table, const NodeBlock& block) const {
    const TableModel& model = *models_[table];
    UpdatePartData data;
    data.part.table = model.spec().id;
    data.part.column_begin = block.columns.begin;
    data.part.column_end = block.columns.end;
    data.part.clipped = true;
    std::vector<float> gradients;
    for (const auto& [row, sum] : model.Sums()) {
      if (!Here(block, model, RowId{row})) continue;
      data.ids.push_back(RowId{row});
      gradients.insert(gradients.end(), sum.begin() + block.columns.begin,
                       sum.begin() + block.columns.end);
      data.row_sum_squares.emplace_back();
      kernels::RowSumSquares({sum.data(), 0, model.spec().dim, kernels::Element::kFloat32},
                             {&data.row_sum_squares.back(), 1});
    }
    data.gradients = EncodeRows(gradients, block.columns.size(), DType::kFloat32);
    return data;
  }

  void Update(std::uint64_t step) {
    bool cut = false, combined = false;
    for (std::size_t t = 0; t < models_.size(); ++t) {
      combined = combined || NeedsCombined(t);
      for (const NodeBlock& block : blocks_[t]) {
        cut = cut || block.columns.size() != models_[t]->spec().dim;
      }
    }
    DType wire = Pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8Rowwise});
    if (combined || (cut && wire == DType::kInt8Rowwise)) wire = DType::kFloat32;
    std::map<NodeId, std::vector<UpdatePartData>> parts;
    for (std::size_t t = 0; t < models_.size(); ++t) {
      const std::optional<float> rate =
          Pick({std::optional<float>(), std::optional(0.0f), std::optional(0.7f)});
      const auto add = [&](NodeId node, UpdatePartData part) {
        part.part.learning_rate = rate;
        parts[node].push_back(std::move(part));
      };
      std::vector<Feature> features(1 + random_() % 2);
      for (Feature& feature : features) {
        feature = RandomFeature(*models_[t], wire);
        AddToModel(*models_[t], feature);
      }
      for (const NodeBlock& block : blocks_[t]) {
        if (NeedsCombined(t)) {
          add(block.node, CombinedPart(t, block));
          continue;
        }
        for (const Feature& feature : features) add(block.node, PartOf(t, feature, block, wire));
      }
      models_[t]->Step(step, rate);
    }
    Send(step, wire, parts);
  }

  // Images of some rows of every table.
  void Write(std::uint64_t step) {
    std::map<NodeId, std::vector<UpdatePartData>> parts;
    for (std::size_t t = 0; t < models_.size(); ++t) {
      TableModel& model = *models_[t];
      const std::uint32_t dim = model.spec().dim;
      const StateShape shape = StateShapeOf(model.spec().optimizer);
      const std::uint32_t state_floats = shape.row_floats + shape.element_arrays * dim;
      const bool with_state = state_floats > 0 && random_() % 3 != 0;
      const bool state_only = with_state && random_() % 3 == 0;
      std::map<std::int64_t, std::vector<float>> images;  // Whole rows.
      for (std::size_t n = random_() % 20; n > 0; --n) {
        std::vector<float>& image = images[ToInt(RandomId(model))];
        image.resize((state_only ? 0 : dim) + (with_state ? state_floats : 0));
        for (float& value : image) value = std::abs(uniform_(random_));
      }
      for (const NodeBlock& block : blocks_[t]) {
        UpdatePartData& data = parts[block.node].emplace_back();
        data.part.table = model.spec().id;
        data.part.form = UpdatePart::Form::kImages;
        data.part.column_begin = block.columns.begin;
        data.part.column_end = block.columns.end;
        data.part.state_only = state_only;
        if (with_state) {
          data.part.state_floats = shape.row_floats + shape.element_arrays * block.columns.size();
        }
        std::vector<float> values;
        for (const auto& [row, image] : images) {
          if (!Here(block, model, RowId{row})) continue;
          data.ids.push_back(RowId{row});
          const auto cut = [&](std::size_t array) {
            values.insert(values.end(), image.begin() + array + block.columns.begin,
                          image.begin() + array + block.columns.end);
          };
          std::size_t at = 0;
          if (!state_only) cut(0);
          if (!with_state) continue;
          at = state_only ? 0 : dim;
          values.insert(values.end(), image.begin() + at, image.begin() + at + shape.row_floats);
          at += shape.row_floats;
          for (std::uint32_t a = 0; a < shape.element_arrays; ++a) cut(at + a * dim);
        }
        data.gradients.resize(values.size() * sizeof(float));
        if (!values.empty())
          std::memcpy(data.gradients.data(), values.data(), data.gradients.size());
      }
      for (const auto& [row, image] : images) {
        if (!model.Has(row)) continue;
        const std::span<const float> all(image);
        const std::size_t weights = state_only ? 0 : dim;
        model.Write(row, all.first(weights), all.subspan(weights));
      }
    }
    Send(step, DType::kFloat32, parts);
  }

  void Send(std::uint64_t step, DType wire, std::map<NodeId, std::vector<UpdatePartData>>& parts) {
    UpdateBatch header;
    header.plan_version = cluster_.plan()->version();
    header.session = SessionId{7};
    header.seq = UpdateSeq{step};
    header.first_incomplete = UpdateSeq{step};
    header.step = step;
    header.wire_dtype = wire;
    for (auto& [node, node_parts] : parts) {
      // Parts of a table keep their order; tables may be anywhere.
      std::stable_sort(node_parts.begin(), node_parts.end(), [](const auto& a, const auto& b) {
        return ToInt(a.part.table) % 2 < ToInt(b.part.table) % 2;
      });
      const std::size_t gap = Pick({0, 12});
      for (int attempt = 0; attempt < 2; ++attempt) {  // The second one must change nothing.
        const absl::StatusOr<UpdateResult> result =
            cluster_.Update(node, Pack(header, node_parts, gap));
        ASSERT_THAT(result, IsOk()) << trace_;
        EXPECT_EQ(result->duplicate, attempt == 1);
      }
    }
  }

  void CompareLookups() {
    for (std::size_t t = 0; t < models_.size(); ++t) {
      const TableModel& model = *models_[t];
      for (const NodeBlock& block : blocks_[t]) {
        LookupBatch header;
        header.wire_dtype =
            Pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8Rowwise});
        std::vector<LookupPartData> parts = {RandomLookup(model, block, Pooling::kNone),
                                             RandomLookup(model, block, Pooling::kSum),
                                             RandomLookup(model, block, Pooling::kMean)};
        const absl::StatusOr<LookupResult> result =
            cluster_.Lookup(block.node, Pack(header, parts), Pick({0, 1, 200, 1000}));
        ASSERT_THAT(result, IsOk()) << trace_;
        const std::byte* at = result->rows.data();
        CompareUnpooled(model, block, parts[0], header.wire_dtype, at);
        for (const std::size_t pooled : {1, 2}) {
          ComparePooled(model, block, parts[pooled], header.wire_dtype, at);
        }
        EXPECT_EQ(at, result->rows.data() + result->rows.size());
      }
    }
  }

  LookupPartData RandomLookup(const TableModel& model, const NodeBlock& block, Pooling pooling) {
    LookupPartData data;
    data.part.table = model.spec().id;
    data.part.pooling = pooling;
    // Any columns of the block may be asked for.
    const std::uint32_t begin = block.columns.begin + random_() % block.columns.size();
    const std::uint32_t end = begin + 1 + random_() % (block.columns.end - begin);
    data.part.column_begin = begin;
    data.part.column_end = end;
    const std::size_t rows = random_() % 30;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t length = pooling == Pooling::kNone ? 1 : random_() % 6;
      std::uint32_t kept = 0;
      for (std::size_t i = 0; i < length; ++i) {
        const RowId id = RandomId(model);
        if (!Here(block, model, id)) continue;
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

  void CompareUnpooled(const TableModel& model, const NodeBlock& block, const LookupPartData& data,
                       DType wire, const std::byte*& at) {
    const ColumnRange columns{data.part.column_begin, data.part.column_end};
    for (const RowId id : data.ids) {
      const std::vector<float> row = model.Has(ToInt(id))
                                         ? model.Decoded(ToInt(id), columns)
                                         : std::vector<float>(columns.size(), 0.0f);
      const std::vector<std::byte> expected = EncodeRows(row, columns.size(), wire);
      ASSERT_EQ(std::memcmp(at, expected.data(), expected.size()), 0)
          << "row " << ToInt(id) << trace_;
      at += expected.size();
    }
  }

  void ComparePooled(const TableModel& model, const NodeBlock& block, const LookupPartData& data,
                     DType wire, const std::byte*& at) {
    const ColumnRange columns{data.part.column_begin, data.part.column_end};
    std::size_t position = 0;
    for (const std::uint32_t length : data.lengths) {
      std::vector<double> sum(columns.size(), 0.0), magnitude(columns.size(), 0.0);
      for (std::uint32_t i = 0; i < length; ++i, ++position) {
        if (!model.Has(ToInt(data.ids[position]))) continue;
        const std::vector<float> row = model.Decoded(ToInt(data.ids[position]), columns);
        double weight = data.weights.empty() ? 1.0 : data.weights[position];
        if (data.part.pooling == Pooling::kMean) weight = 1.0 / length;
        for (std::uint32_t c = 0; c < columns.size(); ++c) {
          sum[c] += weight * row[c];
          magnitude[c] += std::abs(weight * row[c]);
        }
      }
      std::vector<float> got(columns.size());
      kernels::Convert({at, 0, ElementOf(wire)}, {got.data(), 0, kernels::Element::kFloat32}, 1,
                       columns.size());
      at += RowBytes(wire, columns.size());
      const double low = *std::min_element(sum.begin(), sum.end());
      const double high = *std::max_element(sum.begin(), sum.end());
      for (std::uint32_t c = 0; c < columns.size(); ++c) {
        const double wire_error = wire == DType::kFloat32 ? 0.0
                                  : wire == DType::kFloat16
                                      ? std::ldexp(std::abs(sum[c]), -10) + 1e-7
                                  : wire == DType::kBFloat16 ? std::ldexp(std::abs(sum[c]), -7)
                                                             : (high - low) / 255 + 1e-6;
        ASSERT_NEAR(got[c], sum[c],
                    (length + 4) * std::ldexp(magnitude[c], -23) + wire_error + 1e-37)
            << trace_;
      }
    }
  }

  void CompareRows() {
    for (std::size_t t = 0; t < models_.size(); ++t) {
      const TablePlan& table = *cluster_.plan()->FindTable(models_[t]->spec().id);
      for (const std::vector<Slice>& tiling : table.replicas) {
        std::map<NodeId, std::size_t> cells;
        for (const Slice& slice : tiling) {
          cells[slice.device.node] += slice.rows() * slice.columns();
        }
        for (const auto& [node, count] : cells) CompareNodeRows(*models_[t], node, count);
      }
    }
  }

  void CompareNodeRows(const TableModel& model, NodeId node, std::size_t expected_cells) {
    std::size_t cells = 0;
    const absl::Status status = cluster_.node(node).ReadRows(
        {model.spec().id, 0, model.spec().rows, {}, true}, [&](Buffer encoded) {
          const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
          if (!block.ok()) return block.status();
          CompareBlock(model, *block);
          cells += block->rows.size() * block->shape.columns();
          return absl::OkStatus();
        });
    ASSERT_THAT(status, IsOk());
    EXPECT_EQ(cells, expected_cells);
  }

  void CompareBlock(const TableModel& model, const RowBlock& block) {
    const ColumnRange columns{block.shape.column_begin, block.shape.column_end};
    const std::size_t row_bytes = RowBytes(block.shape.dtype, columns.size());
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const std::vector<std::byte> weights = model.Weights(ToInt(block.rows[i]), columns);
      ASSERT_EQ(std::memcmp(weights.data(), block.weights.data() + i * row_bytes, row_bytes), 0)
          << "row " << ToInt(block.rows[i]) << trace_;
      const std::vector<float> state = model.State(ToInt(block.rows[i]), columns);
      ASSERT_THAT(block.state.subspan(i * block.shape.state_floats, block.shape.state_floats),
                  ::testing::ElementsAreArray(state))
          << trace_;
    }
  }

  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0f, 1.0f};
  LocalCluster cluster_;
  std::vector<std::unique_ptr<TableModel>> models_;
  std::vector<std::vector<NodeBlock>> blocks_;  // By table.
  std::string trace_;
};

TEST(ShardNodeOracle, EveryPlanGivesTheSameRowsAsOnePlainArray) {
  for (const std::uint32_t seed : TestSeeds(150)) {
    SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
    Oracle(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace embla::testing
