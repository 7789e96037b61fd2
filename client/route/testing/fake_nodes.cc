#include "client/route/testing/fake_nodes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/route/feature.h"
#include "core/base/status_macros.h"
#include "kernels/combine.h"
#include "kernels/convert.h"

namespace embla::client {

void CanonicalSum::Add(float value) {
  piece_ += value;
  if (++in_piece_ < kernels::kCombinePiece) return;
  total_ += piece_;
  piece_ = 0.0f;
  in_piece_ = 0;
}

float CanonicalSum::Total() const { return in_piece_ == 0 ? total_ : total_ + piece_; }

PlainTable::PlainTable(const TableSpec& spec)
    : spec_(spec), weights_(spec.rows * spec.dim), statistic_(weights_.size()) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] = std::sin(static_cast<float>(i) + static_cast<float>(spec.seed));
  }
}

void PlainTable::Step(std::int64_t row, std::uint32_t column, float gradient, float sum_squares) {
  const std::size_t i = row * spec_.dim + column;
  const OptimizerSpec& optimizer = spec_.optimizer;
  float rate = optimizer.learning_rate;
  if (optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
    statistic_[i] += sum_squares / static_cast<float>(spec_.dim);
    rate /= std::sqrt(statistic_[i]) + optimizer.eps;
  }
  weights_[i] -= rate * gradient;
}

void PlainTable::Write(std::int64_t row, std::uint32_t column, std::optional<float> weight,
                       std::optional<float> statistic) {
  const std::size_t i = row * spec_.dim + column;
  weights_[i] = weight.value_or(weights_[i]);
  statistic_[i] = statistic.value_or(statistic_[i]);
}

FakeNodes::FakeNodes(PlanPtr plan) : routes_(std::make_shared<Routes>(plan)) {
  for (const TablePlan& table : plan->tables()) {
    tables_.emplace(table.spec.id, PlainTable(table.spec));
  }
}

absl::Status FakeNodes::CheckOwned(NodeId node, const TableRoute& table, std::int64_t id,
                                   std::uint32_t column_begin, std::uint32_t column_end,
                                   bool update) const {
  const std::size_t replicas = update ? 1 : table.replica_count();
  for (std::size_t r = 0; r < replicas; ++r) {
    std::uint32_t covered = 0;
    for (const RouteBlock& block : table.blocks(r)) {
      const std::uint32_t begin = std::max(column_begin, block.column_begin());
      const std::uint32_t end = std::min(column_end, block.column_end());
      if (begin < end && block.nodes()[block.OwnerOf(id)] == node) covered += end - begin;
    }
    if (covered == column_end - column_begin) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", table.spec().name, " row ", id, " columns ", column_begin, " to ", column_end,
      " is not on node ", ToInt(node), " at plan ", ToInt(routes_->plan().version())));
}

absl::Status FakeNodes::LookupRows(NodeId node, const LookupPart& part,
                                   std::vector<float>& rows) const {
  const TableRoute* route = routes_->Find(part.table);
  if (route == nullptr) return absl::NotFoundError(absl::StrCat("table ", ToInt(part.table)));
  if (part.pooling == ::embla::Pooling::kMean) return absl::InternalError("a mean was asked for");
  const PlainTable& table = tables_.at(part.table);
  std::size_t bag = 0, left = 0;
  for (std::size_t i = 0; i < part.output_rows() * part.columns(); ++i) rows.push_back(0.0f);
  float* row = rows.data() + rows.size() - part.output_rows() * part.columns();
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const std::int64_t id = ToInt(part.ids[i]);
    EMBLA_RETURN_IF_ERROR(
        CheckOwned(node, *route, id, part.column_begin, part.column_end, /*update=*/false));
    const bool inside = id >= 0 && id < table.spec().rows;
    if (!inside && table.spec().bounds == BoundsMode::kError) {
      return absl::OutOfRangeError(absl::StrCat("table ", table.spec().name, ": id ", id));
    }
    std::size_t output = i;
    if (part.pooling != ::embla::Pooling::kNone) {
      while (left == 0) left = part.lengths[bag++];
      --left;
      output = bag - 1;
    }
    for (std::uint32_t c = 0; inside && c < part.columns(); ++c) {
      const float weight = table.weight(id, part.column_begin + c);
      row[output * part.columns() + c] += part.weights.empty() ? weight : part.weights[i] * weight;
    }
  }
  return absl::OkStatus();
}

absl::Status FakeNodes::Lookup(NodeId node, const NodeLookup& request) {
  std::byte* out = request.reply_rows.data();
  for (const LookupPart& part : request.batch.parts) {
    std::vector<float> rows;
    EMBLA_RETURN_IF_ERROR(LookupRows(node, part, rows));
    const std::size_t row_bytes = RowBytes(request.batch.wire_dtype, part.columns());
    kernels::Convert({rows.data(), part.columns() * sizeof(float)},
                     {out, row_bytes, ElementOf(request.batch.wire_dtype)}, part.output_rows(),
                     part.columns());
    out += row_bytes * part.output_rows();
  }
  if (out == request.reply_rows.data() + request.reply_rows.size()) return absl::OkStatus();
  return absl::InternalError("the client expects another number of bytes");
}

struct FakeNodes::RowGradient {
  std::map<std::uint32_t, CanonicalSum> columns;
  float sum_squares = -1.0f;  // The value that the client sent.
};

absl::Status FakeNodes::AddPart(NodeId node, const NodeUpdate& request, std::uint32_t number,
                                std::span<const RefusedUnit> refused, Rows& rows) const {
  const UpdatePart& part = request.batch.parts[number];
  const DType wire_dtype = request.batch.wire_dtype;
  const TableRoute* route = routes_->Find(part.table);
  if (route == nullptr) return absl::NotFoundError(absl::StrCat("table ", ToInt(part.table)));
  const TableSpec& spec = route->spec();
  std::vector<float> gradients(part.gradient_rows() * part.columns());
  kernels::Convert(
      {part.gradients.data(), RowBytes(wire_dtype, part.columns()), ElementOf(wire_dtype)},
      {gradients.data(), part.columns() * sizeof(float)}, part.gradient_rows(), part.columns());
  const float clip = part.clipped ? 0.0f : spec.optimizer.gradient_clip;
  std::size_t bag = 0, left = 0;
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const std::int64_t id = ToInt(part.ids[i]);
    const bool is_refused = std::any_of(refused.begin(), refused.end(), [&](const auto& unit) {
      return unit.part == number && unit.row_begin <= id && id < unit.row_end;
    });
    if (!is_refused) {
      EMBLA_RETURN_IF_ERROR(
          CheckOwned(node, *route, id, part.column_begin, part.column_end, /*update=*/true));
    }
    float factor = part.weights.empty() ? 1.0f : part.weights[i];
    std::size_t row = i;
    if (part.form == UpdatePart::Form::kBags) {
      while (left == 0) left = part.lengths[bag++];
      --left;
      row = bag - 1;
      if (part.pooling == ::embla::Pooling::kMean) {
        factor = 1.0f / static_cast<float>(part.lengths[row]);
      }
    }
    if (id < 0 || id >= spec.rows) {
      if (spec.bounds == BoundsMode::kIgnore) continue;
      return absl::OutOfRangeError(absl::StrCat("table ", spec.name, ": id ", id));
    }
    if (is_refused) continue;
    RowGradient& sums = rows[id];
    if (!part.row_sum_squares.empty()) sums.sum_squares = part.row_sum_squares[i];
    for (std::uint32_t c = 0; c < part.columns(); ++c) {
      float value = gradients[row * part.columns() + c];
      if (clip > 0) value = std::clamp(value, -clip, clip);
      sums.columns[part.column_begin + c].Add(value * factor);
    }
  }
  return absl::OkStatus();
}

absl::Status FakeNodes::WriteImages(NodeId node, const NodeUpdate& request, std::uint32_t number,
                                    std::span<const RefusedUnit> refused) {
  const UpdatePart& part = request.batch.parts[number];
  const TableRoute* route = routes_->Find(part.table);
  if (route == nullptr) return absl::NotFoundError(absl::StrCat("table ", ToInt(part.table)));
  PlainTable& table = tables_.at(part.table);
  if (part.state_floats > 1) return absl::UnimplementedError("state of more than one float");
  const auto* image = reinterpret_cast<const float*>(part.gradients.data());
  for (const RowId row : part.ids) {
    const std::int64_t id = ToInt(row);
    EMBLA_RETURN_IF_ERROR(
        CheckOwned(node, *route, id, part.column_begin, part.column_end, /*update=*/true));
    const bool is_refused = std::any_of(refused.begin(), refused.end(), [&](const auto& unit) {
      return unit.part == number && unit.row_begin <= id && id < unit.row_end;
    });
    const float* const weights = part.state_only ? nullptr : image;
    image += part.image_floats();
    for (std::uint32_t c = 0; c < part.columns() && !is_refused; ++c) {
      std::optional<float> weight, statistic;
      if (weights != nullptr) weight = weights[c];
      if (part.state_floats > 0) statistic = image[-1];
      table.Write(id, part.column_begin + c, weight, statistic);
    }
  }
  return absl::OkStatus();
}

FakeNodes::Unit FakeNodes::UnitOf(TableId id, std::int64_t row, std::uint32_t column) const {
  const TablePlan& table = *routes_->plan().FindTable(id);
  const TableSpec& spec = table.spec;
  Unit unit;
  while (spec.RowGranuleBegin(unit.second + 1) <= row) ++unit.second;
  std::uint32_t cut_begin = 0;
  for (const Slice& slice : table.primary()) {
    for (const std::uint32_t border : {slice.column_begin, slice.column_end}) {
      if (border <= column) cut_begin = std::max(cut_begin, border);
    }
  }
  unit.first = cut_begin / spec.column_granule_width;
  return unit;
}

UnitSet FakeNodes::UnitsOn(NodeId node, TableId id) const {
  UnitSet units;
  const TablePlan& table = *routes_->plan().FindTable(id);
  for (const Slice& slice : table.primary()) {
    if (slice.device.node != node) continue;
    for (std::int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      for (std::uint32_t column = slice.column_begin; column < slice.column_end; ++column) {
        const auto [column_granule, granule] = UnitOf(id, row, column);
        units.Include(UnitSet({column_granule, granule, granule + 1}));
      }
    }
  }
  return units;
}

UnitSet FakeNodes::AllUnits(TableId id) const {
  UnitSet units;
  for (const NodeSpec& node : routes_->plan().nodes()) units.Include(UnitsOn(node.id, id));
  return units;
}

std::uint64_t FakeNodes::NextStep(TableId table, const UnitSet::Run& unit) const {
  const auto steps = next_steps_.find(table);
  if (steps == next_steps_.end()) return 0;
  const auto step = steps->second.find({unit.column_granule, unit.begin});
  return step == steps->second.end() ? 0 : step->second;
}

absl::Status FakeNodes::MakeStep(const NodeUpdate& request, const UnitSet& units) {
  const StepClaim& claim = *request.batch.claim;
  PlainTable& table = tables_.at(claim.table);
  const auto has = [](const UnitSet& set, const Unit& unit) {
    return set.Meets(UnitSet({unit.first, unit.second, unit.second + 1}));
  };
  for (const UnitSet::Run& run : units.runs()) {
    for (std::uint32_t granule = run.begin; granule < run.end; ++granule) {
      std::uint64_t& next = next_steps_[claim.table][{run.column_granule, granule}];
      if (next++ == request.batch.step) continue;
      return absl::FailedPreconditionError(absl::StrCat("step ", request.batch.step, " is over"));
    }
  }
  std::map<std::pair<std::int64_t, std::uint32_t>, int> elements;
  for (const UpdatePart& part : request.batch.parts) {
    const bool is_allowed = part.table == claim.table && part.form == UpdatePart::Form::kRows &&
                            part.clipped && part.row_sum_squares.empty();
    if (!is_allowed) return absl::InvalidArgumentError("not a contribution's part");
    const std::size_t row_bytes = RowBytes(request.batch.wire_dtype, part.columns());
    std::vector<float> row(part.columns());
    for (std::size_t i = 0; i < part.ids.size(); ++i) {
      const std::int64_t id = ToInt(part.ids[i]);
      kernels::Convert(
          {part.gradients.data() + i * row_bytes, row_bytes, ElementOf(request.batch.wire_dtype)},
          {row.data(), part.columns() * sizeof(float)}, 1, part.columns());
      for (std::uint32_t c = 0; c < part.columns(); ++c) {
        const std::uint32_t column = part.column_begin + c;
        const Unit unit = UnitOf(claim.table, id, column);
        if (!has(claim.units, unit) || elements[{id, column}]++ > 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("row ", id, " is outside the claim, or ", "twice in it"));
        }
        if (has(units, unit)) table.Step(id, column, row[c], /*sum_squares=*/0);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status FakeNodes::CheckUpdate(NodeId node, const NodeUpdate& request) const {
  for (std::uint32_t p = 0; p < request.batch.parts.size(); ++p) {
    Rows rows;
    EMBLA_RETURN_IF_ERROR(AddPart(node, request, p, {}, rows));
  }
  return absl::OkStatus();
}

absl::Status FakeNodes::Update(NodeId node, const NodeUpdate& request,
                               std::span<const RefusedUnit> refused) {
  std::map<TableId, Rows> tables;
  for (std::uint32_t p = 0; p < request.batch.parts.size(); ++p) {
    const UpdatePart& part = request.batch.parts[p];
    EMBLA_RETURN_IF_ERROR(part.is_images()
                              ? WriteImages(node, request, p, refused)
                              : AddPart(node, request, p, refused, tables[part.table]));
  }
  for (auto& [id, rows] : tables) {
    PlainTable& table = tables_.at(id);
    const std::uint32_t dim = table.spec().dim;
    for (auto& [row, gradient] : rows) {
      float sum_squares = gradient.sum_squares;
      if (NeedsRowStatistic(table.spec().optimizer) && gradient.columns.size() < dim &&
          sum_squares < 0) {
        return absl::InvalidArgumentError("row_sum_squares is missing");
      }
      if (gradient.columns.size() == dim) {
        std::vector<float> whole;
        for (const auto& [column, sum] : gradient.columns) whole.push_back(sum.Total());
        kernels::RowSumSquares({whole.data(), dim * sizeof(float), dim}, {&sum_squares, 1});
      }
      for (const auto& [column, sum] : gradient.columns) {
        table.Step(row, column, sum.Total(), sum_squares);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace embla::client
