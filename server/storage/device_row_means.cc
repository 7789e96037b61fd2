// How copies of rows on GPUs are averaged: the kernel reads them where they are, and its means wait
// in the scratch memory until every copy's have been found.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/gpu/kernel_table.h"
#include "server/storage/device_row_store.h"

namespace embla {
namespace {

using kernels::cuda::CopyDistance;
using kernels::cuda::CopyRule;

constexpr std::size_t kDistanceBytes = kernels::cuda::kCopyDistances * sizeof(CopyDistance);

// Weights, the row's scalar, the arrays of state; of those that a row does not have, no columns.
std::array<kernels::MutableRows, 3> ArraysOf(const kernels::StepRows& rows, OptimizerKind rule) {
  const auto floats = [](float* base, std::uint32_t columns) {
    return kernels::MutableRows{base, columns * sizeof(float), columns, kernels::Element::kFloat32};
  };
  const std::uint32_t elements = kernels::ElementStateArrays(rule) * rows.weights.columns;
  return {rows.weights, floats(rows.row_state, kernels::RowStateFloats(rule)),
          floats(rows.element_state, elements)};
}

// The same rows, with slot `first` as slot 0.
kernels::StepRows From(kernels::StepRows rows, std::size_t first, OptimizerKind rule) {
  const auto [weights, scalars, elements] = ArraysOf(rows, rule);
  rows.weights.base = static_cast<std::byte*>(weights.base) + first * weights.stride_bytes;
  rows.row_state += first * scalars.columns;
  rows.element_state += first * elements.columns;
  return rows;
}

// Where each array of `count` such rows begins in memory for all of them, and where the last ends.
std::array<std::size_t, 4> Borders(const kernels::StepRows& rows, OptimizerKind rule,
                                   std::size_t count) {
  constexpr std::size_t kAlignment = 256;
  std::array<std::size_t, 4> borders{};
  const std::array<kernels::MutableRows, 3> arrays = ArraysOf(rows, rule);
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    const std::size_t bytes = count * arrays[k].stride_bytes;
    borders[k + 1] = borders[k] + (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return borders;
}

}  // namespace

kernels::StepRows DeviceRowStore::Means(std::size_t count) const {
  const auto borders = Borders(rows_, optimizer_.step_parameters().rule, count);
  kernels::StepRows means = rows_;
  means.weights.base = lanes_.scratch();
  means.row_state = reinterpret_cast<float*>(lanes_.scratch() + borders[1]);
  means.element_state = reinterpret_cast<float*>(lanes_.scratch() + borders[2]);
  return means;
}

const kernels::StepRows* DeviceRowStore::ShowRows(std::size_t count) {
  const auto borders = Borders(rows_, optimizer_.step_parameters().rule, count);
  const absl::Status room =
      lanes_.Reserve({.out_bytes = kDistanceBytes, .scratch_bytes = borders.back()});
  return room.ok() ? &rows_ : nullptr;
}

absl::StatusOr<kernels::Divergence> DeviceRowStore::FindMeans(const RowCopies& rows) {
  const auto rule = optimizer_.step_parameters().rule;
  std::vector<kernels::StepRows> copies;
  for (const kernels::StepRows& copy : rows.copies) copies.push_back(From(copy, rows.first, rule));
  kernels::Divergence divergence{.values = std::uint64_t{rows.count} * columns_.size()};
  EMBLA_RETURN_IF_ERROR(lanes_.Run(
      1, 0,
      [&](Lane& lane, std::size_t, std::size_t) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(lane.out.Reset(lanes_.device(), kDistanceBytes));
        auto* const distances = lane.out.Take<CopyDistance>(kernels::cuda::kCopyDistances).device;
        EMBLA_RETURN_IF_ERROR(
            QueueMeans(*lane.stream, copies, rows.own, rows.count, Means(rows.count), distances));
        return lane.Fetch();
      },
      [&](Lane& lane, std::size_t, std::size_t) {
        const auto* const distances = reinterpret_cast<const CopyDistance*>(lane.out.host());
        for (const CopyDistance& part : std::span(distances, kernels::cuda::kCopyDistances)) {
          divergence.Add({.max = part.max, .squares = part.squares});
        }
      }));
  return divergence;
}

absl::Status DeviceRowStore::TakeMeans(const RowCopies& rows) {
  const kernels::StepRows means = Means(rows.count);
  const auto to = From(rows_, rows.first, optimizer_.step_parameters().rule);
  // The mean of one copy is the copy.
  return StopOnError(lanes_.Run(
      1, 0,
      [&](Lane& lane, std::size_t, std::size_t) {
        return QueueMeans(*lane.stream, {&means, 1}, 0, rows.count, to, nullptr);
      },
      [](Lane&, std::size_t, std::size_t) {}));
}

absl::Status DeviceRowStore::QueueMeans(gpu::Stream& stream,
                                        std::span<const kernels::StepRows> copies, std::size_t own,
                                        std::size_t count, const kernels::StepRows& to,
                                        CopyDistance* distances) const {
  EMBLA_CHECK(copies.size() <= kernels::cuda::kCopiesMax);
  const auto rule = optimizer_.step_parameters().rule;
  const std::array<kernels::MutableRows, 3> out = ArraysOf(to, rule);
  for (std::size_t k = 0; k < out.size(); ++k) {
    if (out[k].columns == 0) continue;
    kernels::cuda::CopiesOfRows all{.stride_bytes = out[k].stride_bytes,
                                    .count = static_cast<std::uint32_t>(copies.size()),
                                    .own = static_cast<std::uint32_t>(own),
                                    .columns = out[k].columns,
                                    .element = out[k].element};
    for (std::size_t c = 0; c < copies.size(); ++c) all.base[c] = ArraysOf(copies[c], rule)[k].base;
    const bool counts = k == 1 && TraitsOf(rule).state.row_counters > 0;
    EMBLA_RETURN_IF_ERROR(
        stream.Launch("MeanOfCopies", kernels_.mean_of_copies, all, count,
                      counts ? CopyRule::kLargest : CopyRule::kMean,
                      kernels::Output{out[k].base, out[k].stride_bytes, out[k].element},
                      k == 0 ? distances : nullptr));
  }
  return absl::OkStatus();
}

}  // namespace embla
