#include "server/gpu/testing/simulated_stream.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/combine.h"
#include "kernels/lookup.h"

namespace embla::gpu {
namespace {

// Checks the result of a kernel of kernels/cuda, which has run.
void Expect(int error) { EMBLA_CHECK(error == 0); }

// By the CPU's kernels; how many rows were stepped.
std::size_t SumAndStep(const kernels::StepParameters& parameters, const kernels::StepRows& rows,
                       const kernels::cuda::DeviceUpdateBatch& batch) {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> row_of;
  std::vector<float> factors;
  for (std::uint32_t p = 0; p < batch.count; ++p) {
    if (batch.slots[p] == kernels::kNoSlot) continue;
    EMBLA_CHECK(batch.slots[p] < batch.slot_limit);
    ids.push_back(batch.slots[p]);
    row_of.push_back(batch.gradients.row_of == nullptr ? p : batch.gradients.row_of[p]);
    factors.push_back(batch.gradients.factors == nullptr ? 1.0f : batch.gradients.factors[p]);
  }
  kernels::Grouping grouping;
  kernels::GroupIds(ids, grouping);
  const std::uint32_t columns = batch.gradients.columns;
  std::vector<float> sums(grouping.ids.size() * columns);
  kernels::SumSegments(
      grouping,
      {batch.gradients.rows, columns, row_of.data(), factors.data(), batch.gradients.clip}, 0,
      grouping.ids.size(), sums, columns);
  const std::vector<std::uint32_t> slots(grouping.ids.begin(), grouping.ids.end());
  kernels::Step(parameters, rows, {slots, sums.data(), columns, nullptr, batch.step});
  return slots.size();
}

}  // namespace

absl::Status SimulatedStream::Queue(std::function<void()> work) {
  return QueueAttempts([work = std::move(work)] {
    work();
    return true;
  });
}

absl::Status SimulatedStream::QueueAttempts(std::function<bool()> attempt) {
  EMBLA_RETURN_IF_ERROR(device_.Count(SimulatedFault::At::kQueue));
  queued_.push_back(std::move(attempt));
  if (!device_.is_late()) RunQueued();
  return absl::OkStatus();
}

SimulatedStream::~SimulatedStream() {
  if (device_.health().ok()) RunQueued();
}

bool SimulatedStream::RunQueued() {
  while (!queued_.empty() && queued_.front()()) queued_.pop_front();
  return queued_.empty();
}

absl::Status SimulatedStream::Synchronize() {
  const absl::Status status = device_.Count(SimulatedFault::At::kSynchronize);
  // A device that stops may have done any part of its work.
  if (!device_.health().ok()) return status;
  while (!RunQueued()) std::this_thread::yield();
  return status;
}

absl::StatusOr<bool> SimulatedStream::IsDone() {
  EMBLA_RETURN_IF_ERROR(device_.health());
  return RunQueued();
}

// Not a call that faults are injected at: it changes nothing.
absl::Status SimulatedStream::Mark(MarkAt mark) {
  EMBLA_RETURN_IF_ERROR(device_.health());
  queued_.emplace_back([this, mark] {
    marks_[static_cast<std::size_t>(mark)] = std::chrono::steady_clock::now();
    return true;
  });
  if (!device_.is_late()) RunQueued();
  return absl::OkStatus();
}

absl::StatusOr<std::chrono::nanoseconds> SimulatedStream::BetweenMarks() {
  EMBLA_RETURN_IF_ERROR(device_.health());
  EMBLA_CHECK(queued_.empty());
  return marks_[1] - marks_[0];
}

absl::Status SimulatedStream::CopyToDevice(void* to, const void* host, std::size_t bytes) {
  return Queue([=, this] {
    if (bytes == 0) return;
    std::memcpy(device_.Translate(to, bytes), device_.TranslatePinned(host, bytes), bytes);
  });
}

absl::Status SimulatedStream::CopyToHost(void* host, const void* from, std::size_t bytes) {
  return Queue([=, this] {
    if (bytes == 0) return;
    std::memcpy(device_.TranslatePinned(host, bytes), device_.Translate(from, bytes), bytes);
  });
}

absl::Status SimulatedStream::Fill(float* data, std::size_t count, float value) {
  return Queue([=, this] {
    if (count == 0) return;
    auto* const real = reinterpret_cast<float*>(device_.Translate(data, count * sizeof(float)));
    if (device_.kernels() != nullptr) {
      return Expect(device_.kernels()->fill(real, count, value, nullptr));
    }
    std::fill_n(real, count, value);
  });
}

absl::Status SimulatedStream::Initialize(const kernels::InitParameters& parameters,
                                         const kernels::InitRows& rows, std::size_t first_slot,
                                         std::size_t row_count) {
  return Queue([=, this] {
    if (row_count == 0) return;
    kernels::InitRows real = rows;
    const std::size_t row_bytes = kernels::RowBytes(rows.weights.element, rows.weights.columns);
    real.weights.base = device_.Translate(
        rows.weights.base, (first_slot + row_count - 1) * rows.weights.stride_bytes + row_bytes);
    if (device_.kernels() != nullptr) {
      return Expect(
          device_.kernels()->initialize(parameters, real, first_slot, row_count, nullptr));
    }
    kernels::Initialize(parameters, real, first_slot, row_count);
  });
}

std::span<const std::uint32_t> SimulatedStream::Slots(const std::uint32_t* slots,
                                                      std::size_t count) const {
  const std::byte* const real = device_.Translate(slots, count * sizeof(std::uint32_t));
  return {reinterpret_cast<const std::uint32_t*>(real), count};
}

absl::Status SimulatedStream::InitializeIds(const kernels::InitParameters& parameters,
                                            const kernels::InitRows& rows,
                                            const std::uint32_t* slots, const std::int64_t* ids,
                                            std::size_t count) {
  return Queue([=, this] {
    if (count == 0) return;
    const auto real_slots = Slots(slots, count);
    const auto* const real_ids =
        reinterpret_cast<const std::int64_t*>(device_.Translate(ids, count * sizeof(std::int64_t)));
    const kernels::MutableRows& weights = rows.weights;
    std::byte* const base =
        RowBase(weights.base, weights.stride_bytes,
                kernels::RowBytes(weights.element, weights.columns), real_slots);
    if (device_.kernels() != nullptr) {
      kernels::InitRows real = rows;
      real.weights.base = base;
      return Expect(device_.kernels()->initialize_ids(parameters, real, real_slots.data(), real_ids,
                                                      count, nullptr));
    }
    for (std::size_t i = 0; i < count; ++i) {
      kernels::InitRows row = rows;
      row.weights.base = base + real_slots[i] * weights.stride_bytes;
      row.first_row = real_ids[i];
      kernels::Initialize(parameters, row, 0, 1);
    }
  });
}

std::byte* SimulatedStream::RowBase(const void* base, std::size_t stride_bytes,
                                    std::size_t row_bytes,
                                    std::span<const std::uint32_t> slots) const {
  std::size_t end = 0;
  for (const std::uint32_t slot : slots) {
    if (slot != kernels::kNoSlot) end = std::max(end, slot * stride_bytes + row_bytes);
  }
  return device_.Translate(base, end);
}

kernels::Output SimulatedStream::Packed(const kernels::Output& out, std::size_t count,
                                        std::uint32_t columns) const {
  const std::size_t row_bytes = kernels::RowBytes(out.element, columns);
  return {device_.Translate(out.base, (count - 1) * out.stride_bytes + row_bytes), out.stride_bytes,
          out.element};
}

absl::Status SimulatedStream::Gather(const kernels::Rows& rows, const std::uint32_t* slots,
                                     std::size_t count, const kernels::Output& out) {
  return Queue([=, this] {
    if (count == 0) return;
    const auto real_slots = Slots(slots, count);
    kernels::Rows real = rows;
    real.base = RowBase(rows.base, rows.stride_bytes, kernels::RowBytes(rows.element, rows.columns),
                        real_slots);
    const kernels::Output packed = Packed(out, count, rows.columns);
    if (device_.kernels() != nullptr) {
      return Expect(device_.kernels()->gather(real, real_slots.data(), count, packed, nullptr));
    }
    kernels::Gather(real, real_slots, packed);
  });
}

absl::Status SimulatedStream::Scatter(const kernels::MutableRows& rows, const std::uint32_t* slots,
                                      std::size_t count, const kernels::Input& in) {
  EMBLA_CHECK(in.element == rows.element);
  return Queue([=, this] {
    if (count == 0) return;
    const std::size_t row_bytes = kernels::RowBytes(rows.element, rows.columns);
    const auto real_slots = Slots(slots, count);
    std::byte* const to = RowBase(rows.base, rows.stride_bytes, row_bytes, real_slots);
    const std::byte* const from =
        device_.Translate(in.base, (count - 1) * in.stride_bytes + row_bytes);
    if (device_.kernels() != nullptr) {
      kernels::MutableRows real = rows;
      real.base = to;
      return Expect(device_.kernels()->scatter(real, real_slots.data(), count,
                                               {from, in.stride_bytes, in.element}, nullptr));
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + real_slots[i] * rows.stride_bytes, from + i * in.stride_bytes, row_bytes);
    }
  });
}

absl::Status SimulatedStream::Pool(const kernels::Rows& rows, const kernels::cuda::DeviceBags& bags,
                                   const kernels::Output& out) {
  return Queue([=, this] {
    if (bags.count == 0) return;
    const auto offsets = Slots(bags.offsets, bags.count + 1);
    EMBLA_CHECK(offsets[0] == 0);
    std::vector<std::uint32_t> lengths(bags.count);
    for (std::size_t b = 0; b < bags.count; ++b) lengths[b] = offsets[b + 1] - offsets[b];
    const std::size_t slot_count = offsets[bags.count];
    kernels::Bags real;
    if (slot_count > 0) real.slots = Slots(bags.slots, slot_count);
    real.lengths = lengths;
    if (bags.weights != nullptr && slot_count > 0) {
      real.weights = reinterpret_cast<const float*>(
          device_.Translate(bags.weights, slot_count * sizeof(float)));
    }
    kernels::Rows real_rows = rows;
    real_rows.base = RowBase(rows.base, rows.stride_bytes,
                             kernels::RowBytes(rows.element, rows.columns), real.slots);
    const kernels::Output sums = Packed(out, bags.count, rows.columns);
    if (device_.kernels() != nullptr) {
      return Expect(device_.kernels()->pool(
          real_rows, {real.slots.data(), offsets.data(), real.weights, bags.count, bags.mean}, sums,
          nullptr));
    }
    kernels::Pool(real_rows, real, sums);
    if (bags.mean) kernels::DivideRows({sums.base, sums.stride_bytes, rows.columns}, lengths);
  });
}

kernels::StepRows SimulatedStream::RealRows(const kernels::StepParameters& parameters,
                                            const kernels::StepRows& rows,
                                            std::span<const std::uint32_t> slots) const {
  const kernels::MutableRows& weights = rows.weights;
  kernels::StepRows real = rows;
  real.weights.base = RowBase(weights.base, weights.stride_bytes,
                              kernels::RowBytes(weights.element, weights.columns), slots);
  const auto state = [&](float* base, std::size_t floats) {
    const std::size_t bytes = floats * sizeof(float);
    return floats == 0 ? nullptr : reinterpret_cast<float*>(RowBase(base, bytes, bytes, slots));
  };
  real.row_state = state(rows.row_state, kernels::RowStateFloats(parameters.rule));
  real.element_state =
      state(rows.element_state,
            std::size_t{kernels::ElementStateArrays(parameters.rule)} * weights.columns);
  return real;
}

absl::Status SimulatedStream::Step(const kernels::StepParameters& parameters,
                                   const kernels::StepRows& rows,
                                   const kernels::cuda::DeviceStepBatch& batch) {
  return Queue([=, this] {
    EMBLA_CHECK(batch.device_count == nullptr);
    if (batch.count == 0) return;
    const auto slots = Slots(batch.slots, batch.count);
    const kernels::StepRows real = RealRows(parameters, rows, slots);
    kernels::StepBatch step;
    step.slots = slots;
    step.stride = batch.stride;
    step.step = batch.step;
    const std::size_t floats = (batch.count - 1) * batch.stride + rows.weights.columns;
    step.gradients =
        reinterpret_cast<const float*>(device_.Translate(batch.gradients, floats * sizeof(float)));
    if (batch.row_sum_squares != nullptr) {
      step.row_sum_squares = reinterpret_cast<const float*>(
          device_.Translate(batch.row_sum_squares, batch.count * sizeof(float)));
    }
    if (device_.kernels() != nullptr) {
      kernels::cuda::DeviceStepBatch on_device = batch;
      on_device.slots = slots.data();
      on_device.gradients = step.gradients;
      on_device.row_sum_squares = step.row_sum_squares;
      return Expect(device_.kernels()->step(parameters, real, on_device, nullptr));
    }
    kernels::Step(parameters, real, step);
  });
}

absl::StatusOr<std::size_t> SimulatedStream::UpdateBytes(std::size_t count, std::uint32_t columns) {
  EMBLA_RETURN_IF_ERROR(device_.health());
  std::size_t bytes = 0;
  if (device_.kernels() != nullptr) {
    Expect(device_.kernels()->update_bytes(count, columns, &bytes));
  }
  return bytes;
}

absl::Status SimulatedStream::Update(const kernels::StepParameters& parameters,
                                     const kernels::StepRows& rows,
                                     const kernels::cuda::DeviceUpdateBatch& batch,
                                     kernels::cuda::Workspace workspace) {
  return Queue([=, this] {
    if (batch.count == 0) return;
    const auto slots = Slots(batch.slots, batch.count);
    const kernels::StepRows real_rows = RealRows(parameters, rows, slots);
    kernels::cuda::DeviceUpdateBatch real = batch;
    real.slots = slots.data();
    real.rows_stepped = Real(batch.rows_stepped, 1);
    kernels::cuda::DeviceGradients& gradients = real.gradients;
    std::size_t gradient_rows = batch.count;
    if (gradients.row_of != nullptr) {
      const auto row_of = Slots(gradients.row_of, batch.count);
      gradients.row_of = row_of.data();
      gradient_rows = *std::max_element(row_of.begin(), row_of.end()) + std::size_t{1};
    }
    if (gradients.factors != nullptr) gradients.factors = Real(gradients.factors, batch.count);
    gradients.rows.base = device_.Translate(
        gradients.rows.base, (gradient_rows - 1) * gradients.rows.stride_bytes +
                                 kernels::RowBytes(gradients.rows.element, gradients.columns));
    if (device_.kernels() != nullptr) {
      return Expect(
          device_.kernels()->update(parameters, real_rows, real, Real(workspace), nullptr));
    }
    *real.rows_stepped += SumAndStep(parameters, real_rows, real);
  });
}

absl::Status SimulatedStream::SumInOrder(std::span<const float* const> inputs, std::size_t count,
                                         float* out) {
  EMBLA_CHECK(!inputs.empty() && inputs.size() <= kSumInputsMax);
  return Queue([=, this, inputs = std::vector<const float*>(inputs.begin(), inputs.end())] {
    if (count == 0) return;
    auto* const real_out = reinterpret_cast<float*>(device_.Translate(out, count * sizeof(float)));
    std::vector<const float*> real(inputs.size());
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      real[r] = reinterpret_cast<const float*>(HostAddress(inputs[r]));
    }
    if (device_.kernels() != nullptr) {
      return Expect(
          device_.kernels()->sum_in_order(real.data(), real.size(), count, real_out, nullptr));
    }
    for (std::size_t i = 0; i < count; ++i) {
      float sum = real[0][i];
      for (std::size_t r = 1; r < real.size(); ++r) sum += real[r][i];
      real_out[i] = sum;
    }
  });
}

}  // namespace embla::gpu
