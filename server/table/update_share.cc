#include "server/table/update_share.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "server/table/element.h"
#include "server/table/reused_vector.h"

namespace embla {
namespace {

// Summed gradients in flight per thread: they stay in the second-level cache between the sum and
// the step.
constexpr std::size_t kSumBytes = std::size_t{256} << 10;

// A row statistic spans columns that the slice does not have.
bool NeedsWholeRows(const OptimizerSpec& optimizer, const Slice& slice, std::uint32_t dim) {
  return NeedsRowStatistic(optimizer) && slice.columns() != dim;
}

bool Overlap(const UpdatePart& part, const Slice& slice) {
  return part.column_begin < slice.column_end && slice.column_begin < part.column_end;
}

bool IsBags(const UpdatePart* part) { return part->form == UpdatePart::Form::kBags; }
bool IsMean(const UpdatePart* part) { return IsBags(part) && part->pooling == Pooling::kMean; }
bool IsWeighted(const UpdatePart* part) { return IsBags(part) && !part->weights.empty(); }

std::string Columns(std::uint32_t begin, std::uint32_t end) {
  return absl::StrCat("[", begin, ", ", end, ")");
}

absl::Status CheckStateFits(const TableShard& table, const OptimizerSpec& optimizer,
                            const UpdatePart& part) {
  const StateShape shape = StateShapeOf(optimizer);
  const std::uint32_t expected = shape.row_floats + shape.element_arrays * part.columns();
  if (part.state_floats == 0 || part.state_floats == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", table.name(), ": ", part.state_floats, " floats of state per row of columns ",
      Columns(part.column_begin, part.column_end), ", but its optimizer has ", expected));
}

absl::Status CheckPartFits(const TableShard& table, const Slice& slice,
                           const OptimizerSpec& optimizer, const UpdatePart& part,
                           const UpdatePart& first) {
  if (part.column_begin > slice.column_begin || part.column_end < slice.column_end) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", table.name(), ": gradients of columns ",
        Columns(part.column_begin, part.column_end), " are only a part of the columns ",
        Columns(slice.column_begin, slice.column_end), " that are stored together"));
  }
  if (part.column_begin != first.column_begin || part.column_end != first.column_end ||
      part.clipped != first.clipped || part.learning_rate != first.learning_rate ||
      part.row_sum_squares.empty() != first.row_sum_squares.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name(),
                     ": its parts in one update differ in columns, in `clipped`, in learning_rate "
                     "or in having row_sum_squares"));
  }
  if (part.is_images() != first.is_images() || part.state_floats != first.state_floats ||
      part.state_only != first.state_only) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name(), ": its parts in one update are not all images of the same kind"));
  }
  if (part.is_images()) return CheckStateFits(table, optimizer, part);
  if (NeedsWholeRows(optimizer, slice, table.dim()) && part.columns() != table.dim() &&
      part.row_sum_squares.empty() && !part.ids.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name(), ": gradients of columns ",
                     Columns(part.column_begin, part.column_end), " of ", table.dim(),
                     " need row_sum_squares, as its optimizer has a statistic over whole rows"));
  }
  return absl::OkStatus();
}

}  // namespace

struct UpdateShare::Scratch {
  static Scratch& OfThread() {
    thread_local Scratch scratch;
    return scratch;
  }

  std::vector<float> sums;
  std::vector<std::size_t> summed;          // The rows that have sums.
  std::vector<const float*> gradient_rows;  // By row of a piece.
  std::vector<float> row_sum_squares;
  std::vector<std::uint32_t> slots;
};

absl::Status CheckPartsFit(const TableShard& table, const OptimizerSpec& optimizer,
                           TableParts parts) {
  for (const Slice& slice : table.slices()) {
    const UpdatePart* first = nullptr;
    for (const UpdatePart* part : parts) {
      if (!Overlap(*part, slice)) continue;
      if (first == nullptr) first = part;
      EMBLA_RETURN_IF_ERROR(CheckPartFits(table, slice, optimizer, *part, *first));
    }
  }
  return absl::OkStatus();
}

absl::Status UpdateShare::Prepare(const TableSpec& spec, const OwnSlice& own, TableParts parts,
                                  DType wire_dtype) {
  const Slice& slice = own.slice;
  absl::InlinedVector<const UpdatePart*, 4> here;
  for (const UpdatePart* part : parts) {
    if (Overlap(*part, slice)) here.push_back(part);
  }
  found_ = 0;
  images_.reset();
  if (here.empty()) {
    ids_.clear();
    sums_in_store_ = false;
    kernels::GroupIds({}, grouping_);
    return absl::OkStatus();
  }
  const UpdatePart& first = *here.front();
  JoinGradients(here);
  Collect(own, here);
  found_ = ids_.size() * slice.columns();
  learning_rate_ = first.learning_rate;
  sums_in_store_ = false;
  if (first.is_images()) {
    images_ = {first.columns(), first.state_floats, first.state_only, StateShapeOf(spec.optimizer)};
    first_column_ = slice.column_begin - first.column_begin;
    row_sum_squares_.clear();
    kernels::GroupIds(ids_, grouping_);
    EMBLA_RETURN_IF_ERROR(CheckUnique("a row is written"));
    return own.ids == nullptr ? absl::OkStatus() : own.ids->ReserveSettle(grouping_.ids.size());
  }
  const bool whole_rows = NeedsWholeRows(spec.optimizer, slice, spec.dim);
  compute_row_sum_squares_ = whole_rows && first.columns() == spec.dim;
  if (!whole_rows || compute_row_sum_squares_) row_sum_squares_.clear();
  DescribeGradients(slice, first, wire_dtype);
  gradients_.clip = first.clipped ? 0.0f : spec.optimizer.gradient_clip;
  sums_in_store_ = !ids_.empty() && own.store->SumsGradients(ids_.size()) && !whole_rows &&
                   gradients_.columns == slice.columns();
  // Weights and means in one update: a factor of each occurrence is the product of two.
  expands_in_store_ = sums_in_store_ && !bag_lengths_.empty() && ids_.size() > gradient_rows_ &&
                      (factors_.empty() || bag_factors_.empty());
  if (!bag_lengths_.empty() && !expands_in_store_) ExpandBags();
  gradients_.row_of = expands_in_store_ ? nullptr : gradient_of_.data();
  gradients_.factors = factors_.empty() ? nullptr : factors_.data();
  if (sums_in_store_) {
    EMBLA_RETURN_IF_ERROR(own.store->ReserveUpdate(ids_.size(), gradients_, gradient_rows_));
    if (own.ids == nullptr) return absl::OkStatus();
    id_numbering_.Number(ids_);
    return own.ids->ReserveSettle(id_numbering_.ids().size());
  }
  kernels::GroupIds(ids_, grouping_);
  if (!row_sum_squares_.empty()) {
    EMBLA_RETURN_IF_ERROR(CheckUnique("row_sum_squares need unique ids"));
  }
  return own.ids == nullptr ? absl::OkStatus() : own.ids->ReserveSettle(grouping_.ids.size());
}

void UpdateShare::DescribeGradients(const Slice& slice, const UpdatePart& first, DType wire_dtype) {
  // int8 rows carry one scale for all their columns, and a statistic needs them all: sum them all.
  const bool all_columns = compute_row_sum_squares_ || wire_dtype == DType::kInt8Rowwise;
  const std::uint32_t skipped = slice.column_begin - first.column_begin;
  first_column_ = all_columns ? skipped : 0;
  gradients_.rows.element = ElementOf(wire_dtype);
  gradients_.rows.stride_bytes = RowBytes(wire_dtype, first.columns());
  if (!all_columns) {
    gradients_.rows.base = static_cast<const std::byte*>(gradients_.rows.base) +
                           std::size_t{skipped} * ElementBytes(wire_dtype);
  }
  gradients_.columns = all_columns ? first.columns() : slice.columns();
}

// Gradient rows of all parts as one array: parts that follow each other in memory, as those of a
// decoded request do, are one already.
void UpdateShare::JoinGradients(TableParts parts) {
  const std::byte* const base = parts.front()->gradients.data();
  const std::byte* end = base;
  bool adjacent = true;
  std::size_t bytes = 0;
  for (const UpdatePart* part : parts) {
    adjacent = adjacent && (part->gradients.empty() || part->gradients.data() == end);
    end += part->gradients.size();
    bytes += part->gradients.size();
  }
  gradients_.rows.base = base;
  if (adjacent) return;
  ResizeReused(joined_, bytes);
  std::size_t at = 0;
  for (const UpdatePart* part : parts) {
    if (part->gradients.empty()) continue;
    std::memcpy(joined_.data() + at, part->gradients.data(), part->gradients.size());
    at += part->gradients.size();
  }
  gradients_.rows.base = joined_.data();
}

void UpdateShare::Collect(const OwnSlice& own, TableParts parts) {
  std::size_t ids = 0;
  for (const UpdatePart* part : parts) ids += part->ids.size();
  ResizeReused(ids_, ids);
  ResizeReused(gradient_of_, ids);
  ids_.clear();
  gradient_of_.clear();
  factors_.clear();
  row_sum_squares_.clear();
  ttls_.clear();
  bag_lengths_.clear();
  bag_factors_.clear();
  const bool with_ttls =
      std::ranges::any_of(parts, [](const UpdatePart* part) { return part->ttl_steps != 0; });
  const bool in_bags = std::ranges::any_of(parts, IsBags);
  const bool weighted = std::ranges::any_of(parts, IsWeighted);
  std::uint32_t first_gradient = 0;
  for (const UpdatePart* part : parts) {
    WithPresence(own, [&](const auto& has) {
      if (in_bags) {
        CollectBags(*part, has);
      } else {
        CollectRows(*part, first_gradient, has);
      }
    });
    if (weighted && !IsWeighted(part)) factors_.resize(ids_.size(), 1.0f);
    if (with_ttls) ttls_.resize(ids_.size(), part->ttl_steps);
    first_gradient += static_cast<std::uint32_t>(part->gradient_rows());
  }
  gradient_rows_ = first_gradient;
  if (!bag_factors_.empty()) bag_factors_.resize(gradient_rows_, 1.0f);
}

template <typename Has>
void UpdateShare::CollectRows(const UpdatePart& part, std::uint32_t first_gradient,
                              const Has& has) {
  std::size_t at = ids_.size();
  ids_.resize(at + part.ids.size());
  gradient_of_.resize(at + part.ids.size());
  const bool with_squares = !part.row_sum_squares.empty();
  if (with_squares) row_sum_squares_.resize(at + part.ids.size());
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const std::int64_t id = ToInt(part.ids[i]);
    ids_[at] = id;
    gradient_of_[at] = first_gradient + static_cast<std::uint32_t>(i);
    if (with_squares) row_sum_squares_[at] = part.row_sum_squares[i];
    at += has(id) ? 1 : 0;
  }
  ids_.resize(at);
  gradient_of_.resize(at);
  if (with_squares) row_sum_squares_.resize(at);
}

// A part with gradients per row has bags of one id.
template <typename Has>
void UpdateShare::CollectBags(const UpdatePart& part, const Has& has) {
  std::size_t at = ids_.size();
  ids_.resize(at + part.ids.size());
  const bool weighted = IsWeighted(&part);
  if (weighted) factors_.resize(at + part.ids.size());
  const auto bags = static_cast<std::uint32_t>(part.gradient_rows());
  std::size_t i = 0;
  for (std::uint32_t bag = 0; bag < bags; ++bag) {
    const std::uint32_t length = IsBags(&part) ? part.lengths[bag] : 1;
    const std::size_t begin = at;
    for (const std::size_t end = i + length; i < end; ++i) {
      const std::int64_t id = ToInt(part.ids[i]);
      ids_[at] = id;
      if (weighted) factors_[at] = part.weights[i];
      at += has(id) ? 1 : 0;
    }
    bag_lengths_.push_back(static_cast<std::uint32_t>(at - begin));
    if (!IsMean(&part)) continue;
    bag_factors_.resize(bag_lengths_.size(), 1.0f);
    if (length > 0) bag_factors_.back() = 1.0f / static_cast<float>(length);
  }
  ids_.resize(at);
  if (weighted) factors_.resize(at);
}

void UpdateShare::ExpandBags() {
  ResizeReused(gradient_of_, ids_.size());
  kernels::ExpandBags(bag_lengths_, gradient_of_, {});
  if (bag_factors_.empty()) return;
  if (factors_.empty()) factors_.assign(ids_.size(), 1.0f);
  for (std::size_t i = 0; i < ids_.size(); ++i) factors_[i] *= bag_factors_[gradient_of_[i]];
}

absl::Status UpdateShare::CheckUnique(const char* what) const {
  if (grouping_.ids.size() == ids_.size()) return absl::OkStatus();
  for (std::size_t i = 0; i < grouping_.ids.size(); ++i) {
    if (grouping_.offsets[i + 1] - grouping_.offsets[i] == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("id ", grouping_.ids[i], " occurs ",
                                                   grouping_.offsets[i + 1] - grouping_.offsets[i],
                                                   " times in an update, but ", what));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> UpdateShare::Apply(OwnSlice& own, const RowIntervals& skipped,
                                               const Steps& steps) {
  if (sums_in_store_) return UpdateRows(own, skipped, steps);
  if (own.ids != nullptr && !ids_.empty()) {
    EMBLA_RETURN_IF_ERROR(
        own.ids->Settle(TouchAt(steps.step), skipped, *own.store, steps.pool, grouping_));
  }
  const std::vector<std::int64_t>& rows = grouping_.ids;
  std::size_t stepped = 0, begin = 0;
  // The rows ascend, and so do the intervals.
  const auto step_until = [&](std::int64_t row) {
    const auto end = static_cast<std::size_t>(
        std::lower_bound(rows.begin() + begin, rows.end(), row) - rows.begin());
    stepped += end - begin;
    return images_ ? WriteImages(own, begin, end) : StepRows(own, begin, end, steps);
  };
  for (const RowInterval& interval : skipped.intervals()) {
    EMBLA_RETURN_IF_ERROR(step_until(interval.begin));
    begin = static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), interval.end) -
                                     rows.begin());
  }
  EMBLA_RETURN_IF_ERROR(step_until(std::numeric_limits<std::int64_t>::max()));
  return stepped;
}

// The store sums: it gets every gradient with its slot.
absl::StatusOr<std::size_t> UpdateShare::UpdateRows(OwnSlice& own, const RowIntervals& skipped,
                                                    const Steps& steps) const {
  std::vector<std::uint32_t>& slots = Scratch::OfThread().slots;
  ResizeReused(slots, ids_.size());
  if (own.ids != nullptr) {
    EMBLA_RETURN_IF_ERROR(own.ids->SettleInPlace(TouchAt(steps.step), skipped, *own.store,
                                                 steps.pool, id_numbering_, slots));
  } else {
    std::transform(ids_.begin(), ids_.end(), slots.begin(), [&](std::int64_t row) {
      return !skipped.empty() && skipped.Contains(row)
                 ? kernels::kNoSlot
                 : static_cast<std::uint32_t>(row - own.slice.row_begin);
    });
  }
  GradientBatch batch{.slots = slots,
                      .gradients = gradients_,
                      .gradient_rows = gradient_rows_,
                      .step = steps.step,
                      .learning_rate = learning_rate_};
  if (expands_in_store_) {
    batch.bag_lengths = bag_lengths_;
    batch.bag_factors = bag_factors_;
  }
  return own.store->Update(batch);
}

std::size_t UpdateShare::SumsPerThread(std::size_t rows) const {
  return std::clamp<std::size_t>(kSumBytes / (gradients_.columns * sizeof(float)), 16,
                                 std::max<std::size_t>(16, rows));
}

std::size_t UpdateShare::SumsAtOnce(const OwnSlice& own, std::size_t rows,
                                    const Steps& steps) const {
  return std::min(rows, std::max(SumsPerThread(rows) * steps.pool.threads(),
                                 own.store->piece_bytes() / (gradients_.columns * sizeof(float))));
}

// A gradient that is clamped, weighted or converted has no place where it lies as it is, and sums
// of squares over whole rows are computed from columns that the slice does not have.
bool UpdateShare::StepsInPlace() const {
  return gradients_.rows.element == kernels::Element::kFloat32 && gradients_.factors == nullptr &&
         !(gradients_.clip > 0) && !compute_row_sum_squares_;
}

// Describes rows from `first` on, until `end` or until `sums_max` of them have several gradients;
// where it stopped. The sums are not computed yet.
std::size_t UpdateShare::CollectInPlace(const OwnSlice& own, std::size_t first, std::size_t end,
                                        std::size_t sums_max, Scratch& scratch) const {
  const std::size_t columns = gradients_.columns;
  const auto* const base = static_cast<const std::byte*>(gradients_.rows.base);
  scratch.slots.clear();
  scratch.gradient_rows.clear();
  scratch.row_sum_squares.clear();
  scratch.summed.clear();
  std::size_t row = first;
  for (; row < end; ++row) {
    const std::uint32_t position = grouping_.positions[grouping_.offsets[row]];
    if (grouping_.offsets[row + 1] - grouping_.offsets[row] == 1) {
      const std::byte* const gradient =
          base + gradient_of_[position] * gradients_.rows.stride_bytes;
      scratch.gradient_rows.push_back(reinterpret_cast<const float*>(gradient));
    } else {
      if (scratch.summed.size() == sums_max) break;
      scratch.gradient_rows.push_back(&scratch.sums[scratch.summed.size() * columns]);
      scratch.summed.push_back(row);
    }
    scratch.slots.push_back(static_cast<std::uint32_t>(grouping_.ids[row] - own.slice.row_begin));
    if (!row_sum_squares_.empty()) scratch.row_sum_squares.push_back(row_sum_squares_[position]);
  }
  return row;
}

absl::Status UpdateShare::StepRowsInPlace(OwnSlice& own, std::size_t rows_begin,
                                          std::size_t rows_end, const Steps& steps) const {
  Scratch& scratch = Scratch::OfThread();
  const std::size_t columns = gradients_.columns;
  const std::size_t sums_max = SumsAtOnce(own, rows_end - rows_begin, steps);
  scratch.sums.resize(std::min(sums_max, ids_.size() - grouping_.ids.size()) * columns);
  for (std::size_t next = rows_begin; next < rows_end;) {
    next = CollectInPlace(own, next, rows_end, sums_max, scratch);
    const auto sum = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = scratch.summed[i];
        kernels::SumSegments(grouping_, gradients_, row, row + 1,
                             std::span(scratch.sums).subspan(i * columns, columns), columns);
      }
    };
    steps.pool.ParallelFor(scratch.summed.size(), SumsPerThread(scratch.summed.size()), sum);
    RowStepBatch batch;
    batch.slots = scratch.slots;
    batch.gradient_rows = scratch.gradient_rows;
    batch.row_sum_squares = scratch.row_sum_squares;
    batch.step = steps.step;
    batch.learning_rate = learning_rate_;
    EMBLA_RETURN_IF_ERROR(own.store->Step(batch));
  }
  return absl::OkStatus();
}

// Steps the touched rows from `rows_begin` to `rows_end`.
absl::Status UpdateShare::StepRows(OwnSlice& own, std::size_t rows_begin, std::size_t rows_end,
                                   const Steps& steps) const {
  Scratch& scratch = Scratch::OfThread();
  const std::size_t touched = rows_end - rows_begin;
  if (touched == 0) return absl::OkStatus();
  if (StepsInPlace()) return StepRowsInPlace(own, rows_begin, rows_end, steps);
  const std::size_t columns = gradients_.columns;
  const std::size_t rows_per_thread = SumsPerThread(touched);
  const std::size_t rows_at_once = SumsAtOnce(own, touched, steps);
  scratch.sums.resize(rows_at_once * columns);
  scratch.slots.resize(rows_at_once);
  const bool with_squares = compute_row_sum_squares_ || !row_sum_squares_.empty();
  scratch.row_sum_squares.resize(with_squares ? rows_at_once : 0);

  for (std::size_t first = rows_begin; first < rows_end; first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, rows_end - first);
    steps.pool.ParallelFor(count, rows_per_thread, [&](std::size_t begin, std::size_t end) {
      const std::span<float> sums =
          std::span(scratch.sums).subspan(begin * columns, (end - begin) * columns);
      kernels::SumSegments(grouping_, gradients_, first + begin, first + end, sums, columns);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = first + i;
        scratch.slots[i] = static_cast<std::uint32_t>(grouping_.ids[row] - own.slice.row_begin);
        if (row_sum_squares_.empty()) continue;
        scratch.row_sum_squares[i] = row_sum_squares_[grouping_.positions[grouping_.offsets[row]]];
      }
      if (!compute_row_sum_squares_) return;
      kernels::RowSumSquares({sums.data(), columns * sizeof(float),
                              static_cast<std::uint32_t>(columns), kernels::Element::kFloat32},
                             std::span(scratch.row_sum_squares).subspan(begin, end - begin));
    });
    RowStepBatch batch;
    batch.slots = std::span(scratch.slots).first(count);
    batch.gradients = std::span(scratch.sums).first(count * columns).subspan(first_column_);
    batch.stride = columns;
    if (with_squares) batch.row_sum_squares = std::span(scratch.row_sum_squares).first(count);
    batch.step = steps.step;
    batch.learning_rate = learning_rate_;
    EMBLA_RETURN_IF_ERROR(own.store->Step(batch));
  }
  return absl::OkStatus();
}

// Images of the touched rows from `rows_begin` to `rows_end`.
absl::Status UpdateShare::WriteImages(OwnSlice& own, std::size_t rows_begin,
                                      std::size_t rows_end) const {
  if (rows_begin == rows_end) return absl::OkStatus();  // The slice may be released.
  const std::size_t weight_bytes = RowBytes(own.store->dtype(), own.slice.columns());
  const std::size_t state_floats = own.store->StateFloats(own.slice.columns());
  const std::size_t rows_at_once = std::max<std::size_t>(
      own.store->piece_bytes() / (weight_bytes + state_floats * sizeof(float)), 1);
  const bool is_whole = !images_->state_only && (images_->state_floats > 0 || state_floats == 0);
  const auto* const base = static_cast<const std::byte*>(gradients_.rows.base);
  std::vector<std::uint32_t> slots;
  std::vector<std::byte> weights;
  std::vector<float> state;
  for (std::size_t first = rows_begin; first < rows_end; first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, rows_end - first);
    slots.resize(count);
    weights.resize(count * weight_bytes);
    state.resize(count * state_floats);
    for (std::size_t i = 0; i < count; ++i) {
      slots[i] = static_cast<std::uint32_t>(grouping_.ids[first + i] - own.slice.row_begin);
    }
    if (!is_whole) {
      EMBLA_RETURN_IF_ERROR(own.store->ReadRows(slots, own.columns(), {weights, state}));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = gradient_of_[grouping_.positions[grouping_.offsets[first + i]]];
      const std::byte* const image = base + row * images_->floats() * sizeof(float);
      CutImage(reinterpret_cast<const float*>(image), own, weights.data() + i * weight_bytes,
               state.data() + i * state_floats);
    }
    EMBLA_RETURN_IF_ERROR(own.store->WriteRows(slots, own.columns(), {weights, state}));
  }
  return absl::OkStatus();
}

void UpdateShare::CutImage(const float* image, const OwnSlice& own, std::byte* weights,
                           float* state) const {
  const std::uint32_t columns = own.slice.columns();
  if (!images_->state_only) {
    const DType dtype = own.store->dtype();
    kernels::Convert({image + first_column_, columns * sizeof(float)},
                     {weights, RowBytes(dtype, columns), ElementOf(dtype)}, 1, columns);
    image += images_->columns;
  }
  if (images_->state_floats == 0) return;
  state = std::copy_n(image, images_->state.row_floats, state);
  image += images_->state.row_floats + first_column_;
  for (std::uint32_t a = 0; a < images_->state.element_arrays; ++a, image += images_->columns) {
    state = std::copy_n(image, columns, state);
  }
}

}  // namespace embla
