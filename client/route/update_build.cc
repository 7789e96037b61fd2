// UpdateRoute's requests. See update_route.h for the idea.
#include <algorithm>
#include <utility>

#include "client/route/update_route.h"
#include "kernels/convert.h"
#include "kernels/lookup.h"

namespace embla::client {
namespace {

// A piece of a message of its own costs more than to copy less.
constexpr std::size_t kBorrowedBytesMin = 1024;

}  // namespace

struct UpdateRoute::Arrays {
  RowId* ids = nullptr;
  std::uint32_t* lengths = nullptr;
  float* weights = nullptr;
  float* row_sum_squares = nullptr;
  std::byte* gradients = nullptr;
};

std::size_t UpdateRoute::IdCount(const UpdateItem& item) const {
  if (!item.combined()) {
    return item.all ? inputs_[item.feature].feature.ids.size() : item.entries.size();
  }
  std::size_t count = 0;
  for (const IdRange& range : item.ranges) count += range.second - range.first;
  return count;
}

// 0 for gradients per row.
std::size_t UpdateRoute::BagCount(const UpdateItem& item) const {
  if (item.combined()) return 0;
  return item.all ? inputs_[item.feature].feature.lengths.size() : item.bags.size();
}

// A part of a mean's ids does not know the whole bag's length: it is sent as a weighted sum.
bool UpdateRoute::HasWeights(const UpdateItem& item) const {
  if (item.combined()) return false;
  const Feature& feature = inputs_[item.feature].feature;
  return !feature.weights.empty() || (feature.pooling == Pooling::kMean && !item.all);
}

UpdatePart UpdateRoute::PartOf(const UpdateItem& item) const {
  UpdatePart part;
  part.table = tables_[item.table].id;
  part.replica_group = tables_[item.table].replica_group;
  part.column_begin = item.column_begin;
  part.column_end = item.column_end;
  part.clipped = item.combined();
  part.ttl_steps = item.combined() ? item.ttl_steps : inputs_[item.feature].ttl_steps;
  part.learning_rate = tables_[item.table].learning_rate;
  if (const std::optional<StateShape>& state = tables_[item.table].images; state.has_value()) {
    const Input& input = inputs_[item.feature];
    part.form = UpdatePart::Form::kImages;
    part.state_only = input.gradients == nullptr;
    if (input.state != nullptr) {
      part.state_floats = state->row_floats + state->element_arrays * item.columns();
    }
    return part;
  }
  const Pooling pooling = inputs_[item.feature].feature.pooling;
  if (part.clipped || pooling == Pooling::kNone) return part;
  part.form = UpdatePart::Form::kBags;
  part.pooling =
      pooling == Pooling::kMean && item.all ? embla::Pooling::kMean : embla::Pooling::kSum;
  return part;
}

void NodeUpdate::Own() {
  if (borrowed_bytes == 0) return;
  Buffer all = Buffer::Allocate(gradients.size() + borrowed_bytes);
  std::byte* end = all.data();
  for (UpdatePart& part : batch.parts) {
    const std::byte* const begin = end;
    end = std::copy(part.gradients.begin(), part.gradients.end(), end);
    part.gradients = {begin, end};
  }
  gradients = std::move(all);
  borrowed_bytes = 0;
}

// Whether the gradients of `item` travel as they lie in the caller's memory.
bool UpdateRoute::CanBorrow(const UpdateItem& item) const {
  if (options_.wire_dtype != DType::kFloat32) return false;
  if (!item.all || item.combined() || tables_[item.table].images.has_value()) return false;
  const Feature& feature = inputs_[item.feature].feature;
  return feature.stride == item.columns() &&
         feature.rows() * RowBytes(DType::kFloat32, item.columns()) >= kBorrowedBytesMin;
}

NodeUpdate UpdateRoute::Build(const UpdateShare& share, const UpdateHeader& header) const {
  NodeUpdate request;
  request.batch = {.plan_version = share.plan_version,
                   .routed_since = header.routed_since,
                   .session = header.session,
                   .proof = header.proof,
                   .seq = header.seq,
                   .first_incomplete = header.first_incomplete,
                   .step = header.step,
                   .wire_dtype = options_.wire_dtype,
                   .parts = {},
                   .claim = {}};
  if (share.claim.has_value()) {
    request.batch.claim = {.table = TableOf(share),
                           .rank = *options_.rank,
                           .resumes = header.resumes,
                           .units = share.claim->units};
  }
  request.batch.parts.reserve(share.items.size());
  std::size_t ids = 0, lengths = 0, weights = 0, sums = 0, gradient_bytes = 0;
  for (const UpdateItem& item : share.items) {
    UpdatePart& part = request.batch.parts.emplace_back(PartOf(item));
    const bool bags = part.form == UpdatePart::Form::kBags;
    ids += IdCount(item);
    lengths += BagCount(item);
    if (HasWeights(item)) weights += IdCount(item);
    if (item.combined() && !tables_[item.table].combined->row_sum_squares().empty()) {
      sums += IdCount(item);
    }
    const std::size_t bytes =
        (bags ? BagCount(item) : IdCount(item)) * part.row_bytes(options_.wire_dtype);
    if (CanBorrow(item)) {
      const auto* const gradients =
          reinterpret_cast<const std::byte*>(inputs_[item.feature].gradients);
      part.gradients = {gradients, bytes};
      request.borrowed_bytes += bytes;
    } else {
      gradient_bytes += bytes;
    }
  }
  request.ids = pool_->Take(ids * sizeof(RowId));
  request.lengths = pool_->Take(lengths * sizeof(std::uint32_t));
  request.weights = pool_->Take(weights * sizeof(float));
  request.row_sum_squares = pool_->Take(sums * sizeof(float));
  request.gradients = pool_->Take(gradient_bytes);
  Arrays at{request.ids.MutableAs<RowId>().data(),
            request.lengths.MutableAs<std::uint32_t>().data(),
            request.weights.MutableAs<float>().data(),
            request.row_sum_squares.MutableAs<float>().data(), request.gradients.data()};
  for (std::size_t i = 0; i < share.items.size(); ++i) {
    const Arrays begin = at;
    UpdatePart& part = request.batch.parts[i];
    const bool borrows = !part.gradients.empty();
    if (share.items[i].combined()) {
      FillCombined(share.items[i], at);
    } else if (part.is_images()) {
      FillImages(share.items[i], at);
    } else {
      FillFeature(share.items[i], at);
      if (!borrows) FillGradients(share.items[i], at);
    }
    part.ids = {begin.ids, at.ids};
    part.lengths = {begin.lengths, at.lengths};
    part.weights = {begin.weights, at.weights};
    part.row_sum_squares = {begin.row_sum_squares, at.row_sum_squares};
    if (!borrows) part.gradients = {begin.gradients, at.gradients};
  }
  return request;
}

void UpdateRoute::FillCombined(const UpdateItem& item, Arrays& arrays) const {
  const CombinedGradients& combined = *tables_[item.table].combined;
  const std::span<const float> sums = combined.row_sum_squares();
  const std::size_t row_bytes = RowBytes(options_.wire_dtype, item.columns());
  for (const IdRange& range : item.ranges) {
    for (std::uint32_t i = range.first; i < range.second; ++i) {
      *arrays.ids++ = RowId{combined.ids()[i]};
      if (!sums.empty()) *arrays.row_sum_squares++ = sums[i];
    }
    combined.Write(range, item.column_begin, item.column_end, options_.wire_dtype,
                   arrays.gradients);
    arrays.gradients += (range.second - range.first) * row_bytes;
  }
}

void UpdateRoute::FillImages(const UpdateItem& item, Arrays& arrays) const {
  const Input& input = inputs_[item.feature];
  const StateShape& shape = *tables_[item.table].images;
  const std::uint32_t dim = input.feature.dim;
  const std::size_t state_floats = shape.row_floats + std::size_t{shape.element_arrays} * dim;
  auto* out = reinterpret_cast<float*>(arrays.gradients);
  for (std::size_t i = 0; i < IdCount(item); ++i) {
    const std::size_t entry = item.all ? i : item.entries[i];
    *arrays.ids++ = RowId{input.feature.ids[entry]};
    if (input.gradients != nullptr) {
      out = std::copy_n(input.gradients + entry * dim + item.column_begin, item.columns(), out);
    }
    if (input.state == nullptr) continue;
    const float* state = input.state + entry * state_floats;
    out = std::copy_n(state, shape.row_floats, out);
    state += shape.row_floats + item.column_begin;
    for (std::uint32_t a = 0; a < shape.element_arrays; ++a, state += dim) {
      out = std::copy_n(state, item.columns(), out);
    }
  }
  arrays.gradients = reinterpret_cast<std::byte*>(out);
}

void UpdateRoute::FillFeature(const UpdateItem& item, Arrays& arrays) const {
  const Input& input = inputs_[item.feature];
  const Feature& feature = input.feature;
  const std::size_t ids = IdCount(item);
  for (std::size_t i = 0; i < ids; ++i) {
    const std::size_t entry = item.all ? i : item.entries[i];
    *arrays.ids++ = RowId{feature.ids[entry]};
    if (!feature.weights.empty()) *arrays.weights++ = feature.weights[entry];
  }
  const bool pooled = feature.pooling != Pooling::kNone;
  if (pooled && item.all) {
    arrays.lengths = std::copy(feature.lengths.begin(), feature.lengths.end(), arrays.lengths);
  } else if (pooled) {
    arrays.lengths = std::copy(item.lengths.begin(), item.lengths.end(), arrays.lengths);
  }
  if (feature.pooling == Pooling::kMean && !item.all) {
    for (std::size_t b = 0; b < item.bags.size(); ++b) {
      const float inverse = 1.0f / static_cast<float>(feature.lengths[item.bags[b]]);
      arrays.weights = std::fill_n(arrays.weights, item.lengths[b], inverse);
    }
  }
}

void UpdateRoute::FillGradients(const UpdateItem& item, Arrays& arrays) const {
  const Input& input = inputs_[item.feature];
  const Feature& feature = input.feature;
  const bool pooled = feature.pooling != Pooling::kNone;
  const std::size_t stride = feature.stride * sizeof(float);
  const float* gradients = input.gradients + item.column_begin;
  const kernels::Output out{arrays.gradients, RowBytes(options_.wire_dtype, item.columns()),
                            ElementOf(options_.wire_dtype)};
  const std::vector<std::uint32_t>& rows = pooled ? item.bags : item.entries;
  const std::size_t row_count = item.all ? feature.rows() : rows.size();
  if (item.all) {
    kernels::Convert({gradients, stride}, out, row_count, item.columns());
  } else {
    kernels::Gather({gradients, stride, item.columns()}, rows, out);
  }
  arrays.gradients += row_count * out.stride_bytes;
}

}  // namespace embla::client
