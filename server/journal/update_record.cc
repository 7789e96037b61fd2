#include "server/journal/update_record.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"

namespace embla {
namespace {

// Properties of a part besides ids and gradients.
enum PartFlag : std::uint8_t {
  kClipped = 1,
  kWeighted = 2,
  kSquares = 4,
  kTtl = 8,
  kLearningRate = 16,
  kState = 32,
  kStateOnly = 64,
  kFlagsAll = 127
};

constexpr std::size_t kTableBytes = 16;
constexpr std::size_t kUnitBytes = 16;
constexpr std::size_t kPartBytes = 28;

absl::Status DamagedUpdate(const char* what) {
  return absl::DataLossError(absl::StrCat("update record: ", what));
}

void PutTable(const DecidedTable& table, RecordWriter& out) {
  out.Put(ToInt(table.table));
  out.Put(table.replica_group);
  out.Put(static_cast<std::uint32_t>(table.applies_rest));
  out.Put(static_cast<std::uint32_t>(table.units.size()));
  for (const DecidedUnit& unit : table.units) {
    out.Put(unit.row_granule);
    out.Put(unit.columns.begin);
    out.Put(unit.columns.end);
    out.Put(static_cast<std::uint32_t>(unit.applies));
  }
}

DecidedTable GetTable(RecordReader& in) {
  DecidedTable table;
  table.table = TableId{in.Get<std::uint32_t>()};
  table.replica_group = in.Get<std::uint32_t>();
  const auto applies_rest = in.Get<std::uint32_t>();
  table.applies_rest = applies_rest == 1;
  if (applies_rest > 1) in.Fail();
  for (std::uint32_t left = in.GetCount(kUnitBytes); left > 0; --left) {
    DecidedUnit& unit = table.units.emplace_back();
    unit.row_granule = in.Get<std::uint32_t>();
    unit.columns.begin = in.Get<std::uint32_t>();
    unit.columns.end = in.Get<std::uint32_t>();
    const auto applies = in.Get<std::uint32_t>();
    unit.applies = applies == 1;
    if (applies > 1 || unit.columns.begin >= unit.columns.end) in.Fail();
  }
  return table;
}

void PutPart(const UpdatePart& part, RecordWriter& out) {
  std::uint8_t flags = part.clipped ? kClipped : 0;
  if (!part.weights.empty()) flags |= kWeighted;
  if (!part.row_sum_squares.empty()) flags |= kSquares;
  if (part.ttl_steps != 0) flags |= kTtl;
  if (part.learning_rate.has_value()) flags |= kLearningRate;
  if (part.state_floats != 0) flags |= kState;
  if (part.state_only) flags |= kStateOnly;
  out.Put(ToInt(part.table));
  out.Put(part.replica_group);
  out.Put(static_cast<std::uint8_t>(part.form));
  out.Put(static_cast<std::uint8_t>(part.pooling));
  out.Put(flags);
  out.Put(std::uint8_t{0});
  out.Put(part.column_begin);
  out.Put(part.column_end);
  out.Put(static_cast<std::uint32_t>(part.ids.size()));
  out.Put(static_cast<std::uint32_t>(part.lengths.size()));
  if (part.ttl_steps != 0) out.Put(part.ttl_steps);
  if (part.learning_rate.has_value()) out.Put(*part.learning_rate);
  if (part.state_floats != 0) out.Put(part.state_floats);
  out.PutArray(part.ids);
  out.PutArray(part.lengths);
  out.PutArray(part.weights);
  out.PutArray(part.row_sum_squares);
  out.PutArray(part.gradients);
}

bool HasKnownForm(const UpdatePart& part, std::uint8_t flags) {
  if (flags > kFlagsAll || part.column_begin >= part.column_end || part.column_end > kDimMax) {
    return false;
  }
  const bool weighted = (flags & kWeighted) != 0;
  if (part.form == UpdatePart::Form::kImages) {
    const bool has_numbers = (flags & kStateOnly) == 0 || (flags & kState) != 0;
    return has_numbers && (flags & (kClipped | kWeighted | kSquares | kLearningRate)) == 0;
  }
  if ((flags & (kState | kStateOnly)) != 0) return false;
  if (part.form == UpdatePart::Form::kRows) return !weighted;
  if (part.form != UpdatePart::Form::kBags || (flags & kSquares) != 0) return false;
  return part.pooling == Pooling::kSum || (part.pooling == Pooling::kMean && !weighted);
}

absl::StatusOr<UpdatePart> GetPart(DType wire_dtype, RecordReader& in) {
  UpdatePart part;
  part.table = TableId{in.Get<std::uint32_t>()};
  part.replica_group = in.Get<std::uint32_t>();
  part.form = static_cast<UpdatePart::Form>(in.Get<std::uint8_t>());
  part.pooling = static_cast<Pooling>(in.Get<std::uint8_t>());
  const auto flags = in.Get<std::uint8_t>();
  if (in.Get<std::uint8_t>() != 0) in.Fail();
  part.column_begin = in.Get<std::uint32_t>();
  part.column_end = in.Get<std::uint32_t>();
  const std::uint64_t ids = in.Get<std::uint32_t>();
  const std::uint64_t lengths = in.Get<std::uint32_t>();
  if (!in.ok() || !HasKnownForm(part, flags)) return DamagedUpdate("a part of an unknown form");
  if (ids == 0 && (flags & (kWeighted | kSquares)) != 0)
    return DamagedUpdate("nothing is weighted");
  part.clipped = (flags & kClipped) != 0;
  if ((flags & kTtl) != 0) {
    part.ttl_steps = in.Get<std::uint32_t>();
    if (part.ttl_steps == 0) in.Fail();
  }
  if ((flags & kLearningRate) != 0) {
    part.learning_rate = in.Get<float>();
    if (!(*part.learning_rate >= 0 && std::isfinite(*part.learning_rate))) in.Fail();
  }
  part.state_only = (flags & kStateOnly) != 0;
  if ((flags & kState) != 0) {
    part.state_floats = in.Get<std::uint32_t>();
    if (part.state_floats == 0 || part.state_floats > kRowBlockStateFloatsMax) in.Fail();
  }
  part.ids = in.GetArray<RowId>(ids);
  part.lengths = in.GetArray<std::uint32_t>(lengths);
  part.weights = in.GetArray<float>((flags & kWeighted) != 0 ? ids : 0);
  part.row_sum_squares = in.GetArray<float>((flags & kSquares) != 0 ? ids : 0);
  if (!in.ok()) return DamagedUpdate("a part is cut off");
  const std::uint64_t rows = part.gradient_rows();
  if (part.is_images() && wire_dtype != DType::kFloat32)
    return DamagedUpdate("images that are not fp32");
  part.gradients = in.GetArray<std::byte>(rows * part.row_bytes(wire_dtype));
  std::uint64_t in_bags = 0;
  for (const std::uint32_t length : part.lengths) in_bags += length;
  const bool fits = part.form == UpdatePart::Form::kBags ? in_bags == ids : lengths == 0;
  if (!in.ok() || !fits) return DamagedUpdate("a part whose arrays do not fit together");
  return part;
}

constexpr std::size_t kNameBytes = 24;

void PutStep(const UpdateBatch& batch, RecordWriter& out) {
  out.Put(ToInt(batch.claim->table));
  out.Put(static_cast<std::uint32_t>(batch.contributors.size()));
  for (const UpdateName& name : batch.contributors) {
    out.Put(ToInt(name.session));
    out.Put(ToInt(name.seq));
    out.Put(ToInt(name.first_incomplete));
  }
}

void GetStep(RecordReader& in, UpdateBatch& batch) {
  batch.is_step = true;
  batch.claim.emplace().table = TableId{in.Get<std::uint32_t>()};
  for (std::uint32_t left = in.GetCount(kNameBytes); left > 0; --left) {
    UpdateName& name = batch.contributors.emplace_back();
    name.session = SessionId{in.Get<std::uint64_t>()};
    name.seq = UpdateSeq{in.Get<std::uint64_t>()};
    name.first_incomplete = UpdateSeq{in.Get<std::uint64_t>()};
  }
}

bool IsKnown(std::uint32_t dtype) {
  return dtype >= static_cast<std::uint32_t>(DType::kFloat32) &&
         dtype <= static_cast<std::uint32_t>(DType::kInt8Rowwise);
}

}  // namespace

void PutUpdate(const DecidedUpdate& update, RecordWriter& out) {
  const UpdateBatch& batch = update.batch;
  std::size_t bytes = 256 + 64 * batch.parts.size();
  for (const UpdatePart& part : batch.parts) {
    bytes += part.ids.size_bytes() + part.lengths.size_bytes() + part.weights.size_bytes() +
             part.row_sum_squares.size_bytes() + part.gradients.size();
  }
  for (const DecidedTable& table : update.tables) {
    bytes += kTableBytes + kUnitBytes * table.units.size();
  }
  bytes += kNameBytes * batch.contributors.size();
  out.Reserve(bytes);
  if (batch.is_step) PutStep(batch, out);
  out.Put(ToInt(batch.session));
  out.Put(ToInt(batch.seq));
  out.Put(ToInt(batch.first_incomplete));
  out.Put(batch.step);
  out.Put(ToInt(batch.plan_version));
  out.Put(absl::ToUnixNanos(update.time));
  out.Put(static_cast<std::uint32_t>(batch.wire_dtype));
  out.Put(static_cast<std::uint32_t>(update.tables.size()));
  for (const DecidedTable& table : update.tables) PutTable(table, out);
  out.Put(static_cast<std::uint32_t>(batch.parts.size()));
  for (const UpdatePart& part : batch.parts) PutPart(part, out);
}

std::string EncodeUpdateRecord(const DecidedUpdate& update) {
  RecordWriter out;
  PutUpdate(update, out);
  return std::move(out).Take();
}

namespace {

absl::StatusOr<DecidedUpdate> Decode(RecordReader in, const SharedBuffer& bytes,
                                     DecidedUpdate update) {
  UpdateBatch& batch = update.batch;
  batch.memory = bytes;
  batch.session = SessionId{in.Get<std::uint64_t>()};
  batch.seq = UpdateSeq{in.Get<std::uint64_t>()};
  batch.first_incomplete = UpdateSeq{in.Get<std::uint64_t>()};
  batch.step = in.Get<std::uint64_t>();
  batch.plan_version = PlanVersion{in.Get<std::uint64_t>()};
  update.time = absl::FromUnixNanos(in.Get<std::int64_t>());
  const auto wire_dtype = in.Get<std::uint32_t>();
  if (!in.ok() || !IsKnown(wire_dtype)) return DamagedUpdate("an unknown number format");
  batch.wire_dtype = static_cast<DType>(wire_dtype);
  const std::uint32_t tables = in.GetCount(kTableBytes);
  update.tables.reserve(tables);
  for (std::uint32_t t = 0; t < tables; ++t) update.tables.push_back(GetTable(in));
  const std::uint32_t parts = in.GetCount(kPartBytes);
  batch.parts.reserve(parts);
  for (std::uint32_t p = 0; p < parts && in.ok(); ++p) {
    EMBLA_ASSIGN_OR_RETURN(UpdatePart part, GetPart(batch.wire_dtype, in));
    batch.parts.push_back(part);
  }
  if (!in.at_end()) return DamagedUpdate("not as long as it says");
  return update;
}

}  // namespace

absl::StatusOr<DecidedUpdate> DecodeUpdateRecord(const SharedBuffer& bytes) {
  return Decode(RecordReader(bytes.bytes()), bytes, DecidedUpdate());
}

absl::StatusOr<DecidedUpdate> DecodeStepRecord(const SharedBuffer& bytes) {
  RecordReader in(bytes.bytes());
  DecidedUpdate update;
  GetStep(in, update.batch);
  if (!in.ok()) return DamagedUpdate("a step whose contributions are cut off");
  return Decode(in, bytes, std::move(update));
}

}  // namespace embla
