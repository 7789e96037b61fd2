#include "server/gpu/testing/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "kernels/combine.h"
#include "kernels/convert.h"
#include "kernels/copy_mean.h"
#include "kernels/lookup.h"

namespace embla::gpu {
namespace {

using kernels::cuda::StreamHandle;

int Initialize(const kernels::InitParameters& parameters, const kernels::InitRows& rows,
               std::size_t first_slot, std::size_t row_count, StreamHandle) {
  kernels::Initialize(parameters, rows, first_slot, row_count);
  return 0;
}

int InitializeIds(const kernels::InitParameters& parameters, const kernels::InitRows& rows,
                  const std::uint32_t* slots, const std::int64_t* ids, std::size_t count,
                  StreamHandle) {
  auto* const base = static_cast<std::byte*>(rows.weights.base);
  for (std::size_t i = 0; i < count; ++i) {
    if (slots[i] == kernels::kNoSlot) continue;
    kernels::InitRows row = rows;
    row.weights.base = base + slots[i] * rows.weights.stride_bytes;
    row.first_row = ids[i];
    kernels::Initialize(parameters, row, 0, 1);
  }
  return 0;
}

int Gather(const kernels::Rows& rows, const std::uint32_t* slots, std::size_t count,
           const kernels::Output& out, StreamHandle) {
  kernels::Gather(rows, {slots, count}, out);
  return 0;
}

int Scatter(const kernels::MutableRows& rows, const std::uint32_t* slots, std::size_t count,
            const kernels::Input& in, StreamHandle) {
  EMBLA_CHECK(in.element == rows.element);
  auto* const to = static_cast<std::byte*>(rows.base);
  const auto* const from = static_cast<const std::byte*>(in.base);
  const std::size_t row_bytes = kernels::RowBytes(rows.element, rows.columns);
  for (std::size_t i = 0; i < count; ++i) {
    if (slots[i] == kernels::kNoSlot) continue;
    std::memcpy(to + slots[i] * rows.stride_bytes, from + i * in.stride_bytes, row_bytes);
  }
  return 0;
}

int Pool(const kernels::Rows& rows, const kernels::cuda::DeviceBags& bags,
         const kernels::Output& out, StreamHandle) {
  if (bags.count == 0) return 0;
  EMBLA_CHECK(bags.offsets[0] == 0);
  std::vector<std::uint32_t> lengths(bags.count);
  for (std::size_t b = 0; b < bags.count; ++b) lengths[b] = bags.offsets[b + 1] - bags.offsets[b];
  kernels::Pool(rows, {{bags.slots, bags.offsets[bags.count]}, lengths, bags.weights}, out);
  if (bags.mean) kernels::DivideRows({out.base, out.stride_bytes, rows.columns}, lengths);
  return 0;
}

int DivideRows(const kernels::MutableRows& rows, const std::uint32_t* lengths, std::size_t count,
               StreamHandle) {
  kernels::DivideRows(rows, {lengths, count});
  return 0;
}

int Convert(const kernels::Input& in, const kernels::Output& out, std::size_t row_count,
            std::uint32_t columns, StreamHandle) {
  kernels::Convert(in, out, row_count, columns);
  return 0;
}

int Step(const kernels::StepParameters& parameters, const kernels::StepRows& rows,
         const kernels::cuda::DeviceStepBatch& batch, StreamHandle) {
  EMBLA_CHECK(batch.device_count == nullptr);
  kernels::Step(parameters, rows,
                {{batch.slots, batch.count},
                 batch.gradients,
                 batch.stride,
                 batch.row_sum_squares,
                 batch.step});
  return 0;
}

int ExpandBags(const std::uint32_t* offsets, std::size_t bag_count, std::size_t position_count,
               std::uint32_t* bag_of, float* inverse_lengths, StreamHandle) {
  std::vector<std::uint32_t> lengths(bag_count);
  for (std::size_t b = 0; b < bag_count; ++b) lengths[b] = offsets[b + 1] - offsets[b];
  kernels::ExpandBags(lengths, {bag_of, position_count},
                      {inverse_lengths, inverse_lengths == nullptr ? 0 : position_count});
  return 0;
}

int UpdateBytes(std::size_t, std::uint32_t, std::size_t* bytes) {
  *bytes = 0;
  return 0;
}

int Update(const kernels::StepParameters& parameters, const kernels::StepRows& rows,
           const kernels::cuda::DeviceUpdateBatch& batch, kernels::cuda::Workspace, StreamHandle) {
  const kernels::cuda::DeviceGradients& gradients = batch.gradients;
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> row_of;
  std::vector<float> factors;
  for (std::uint32_t p = 0; p < batch.count; ++p) {
    if (batch.slots[p] == kernels::kNoSlot) continue;
    EMBLA_CHECK(batch.slots[p] < batch.slot_limit);
    ids.push_back(batch.slots[p]);
    row_of.push_back(gradients.row_of == nullptr ? p : gradients.row_of[p]);
    factors.push_back(gradients.factors == nullptr ? 1.0f : gradients.factors[p]);
  }
  kernels::Grouping grouping;
  kernels::GroupIds(ids, grouping);
  const std::uint32_t columns = gradients.columns;
  std::vector<float> sums(grouping.ids.size() * columns);
  kernels::SumSegments(grouping,
                       {gradients.rows, columns, row_of.data(), factors.data(), gradients.clip}, 0,
                       grouping.ids.size(), sums, columns);
  const std::vector<std::uint32_t> slots(grouping.ids.begin(), grouping.ids.end());
  kernels::Step(parameters, rows, {slots, sums.data(), columns, nullptr, batch.step});
  if (batch.rows_stepped != nullptr) *batch.rows_stepped += slots.size();
  return 0;
}

int Fill(float* data, std::size_t count, float value, StreamHandle) {
  std::fill_n(data, count, value);
  return 0;
}

int SumInOrder(const float* const* inputs, std::size_t input_count, std::size_t count, float* out,
               StreamHandle) {
  EMBLA_CHECK(input_count >= 1 && input_count <= kernels::cuda::kSumInputsMax);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = inputs[0][i];
    for (std::size_t r = 1; r < input_count; ++r) sum += inputs[r][i];
    out[i] = sum;
  }
  return 0;
}

int MeanOfCopies(const kernels::cuda::CopiesOfRows& copies, std::size_t row_count,
                 kernels::cuda::CopyRule rule, const kernels::Output& out,
                 kernels::cuda::CopyDistance* distances, StreamHandle) {
  EMBLA_CHECK(copies.own < copies.count && out.element == copies.element);
  const std::size_t columns = copies.columns, row_bytes = columns * sizeof(float);
  const bool counts = rule == kernels::cuda::CopyRule::kLargest;
  const kernels::CopyRow row{counts ? 0 : columns, counts ? columns : 0, columns};
  std::vector<float> in(copies.count * columns), mean(columns);
  kernels::cuda::CopyDistance own;
  for (std::size_t i = 0; columns > 0 && i < row_count; ++i) {
    for (std::size_t c = 0; c < copies.count; ++c) {
      const auto* const from = static_cast<const std::byte*>(copies.base[c]);
      kernels::Convert({from + i * copies.stride_bytes, 0, copies.element},
                       {in.data() + c * columns, row_bytes}, 1, copies.columns);
    }
    kernels::MeanOfCopies(in, copies.count, row, mean);
    for (std::size_t j = 0; j < columns; ++j) {
      const float value = in[copies.own * columns + j];
      if (std::memcmp(&value, &mean[j], sizeof(float)) == 0) continue;
      const double distance = std::abs(double{value} - double{mean[j]});
      own.max = std::max(own.max, distance);
      own.squares += distance * distance;
    }
    kernels::Convert({mean.data(), row_bytes},
                     {static_cast<std::byte*>(out.base) + i * out.stride_bytes, 0, out.element}, 1,
                     copies.columns);
  }
  if (distances == nullptr) return 0;
  std::fill_n(distances, kernels::cuda::kCopyDistances, kernels::cuda::CopyDistance{});
  distances[0] = own;
  return 0;
}

}  // namespace

const KernelTable& HostKernels() {
  static const KernelTable kKernels = {.initialize = &Initialize,
                                       .initialize_ids = &InitializeIds,
                                       .gather = &Gather,
                                       .scatter = &Scatter,
                                       .pool = &Pool,
                                       .divide_rows = &DivideRows,
                                       .convert = &Convert,
                                       .step = &Step,
                                       .expand_bags = &ExpandBags,
                                       .update_bytes = &UpdateBytes,
                                       .update = &Update,
                                       .fill = &Fill,
                                       .sum_in_order = &SumInOrder,
                                       .mean_of_copies = &MeanOfCopies,
                                       .ids = HostIdKernels()};
  return kKernels;
}

}  // namespace embla::gpu
