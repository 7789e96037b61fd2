// The CUDA kernels behind the host's signatures, for the conformance suites: every verb copies what
// it reads to the device, and what it wrote back.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/testing/kernel_set.h"
#include "kernels/cuda/combine.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels {
namespace {

using cuda::OnDevice;

// Bytes of `count` rows, the last one without what its stride adds.
std::size_t BytesOf(std::size_t count, std::size_t stride_bytes, std::size_t row_bytes) {
  return count == 0 ? 0 : (count - 1) * stride_bytes + row_bytes;
}

std::size_t SlotsEnd(std::span<const std::uint32_t> slots) {
  std::size_t end = 0;
  for (const std::uint32_t slot : slots) {
    if (slot != kNoSlot) end = std::max(end, std::size_t{slot} + 1);
  }
  return end;
}

// Rows 0..count-1 of a table. The device may read their padding.
OnDevice TableOnDevice(const void* base, const Rows& shape, std::size_t count) {
  const std::size_t row_bytes = RowBytes(shape.element, shape.columns);
  return {base, BytesOf(count, shape.stride_bytes, row_bytes), count * shape.stride_bytes};
}
Rows ShapeOf(const MutableRows& rows) {
  return {rows.base, rows.stride_bytes, rows.columns, rows.element};
}

OnDevice InputOnDevice(const Input& in, std::size_t count, std::uint32_t columns) {
  return {in.base, BytesOf(count, in.stride_bytes, RowBytes(in.element, columns))};
}
OnDevice OutputOnDevice(const Output& out, std::size_t count, std::uint32_t columns) {
  return {out.base, BytesOf(count, out.stride_bytes, RowBytes(out.element, columns))};
}

std::vector<std::uint32_t> OffsetsOf(std::span<const std::uint32_t> lengths) {
  std::vector<std::uint32_t> offsets(lengths.size() + 1);
  std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

class DeviceKernels final : public KernelSet {
 public:
  bool is_on_host() const override { return false; }

  void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
              const PrefetchTuning&) override {
    const OnDevice table = TableOnDevice(rows.base, rows, SlotsEnd(slots));
    const OnDevice device_slots(slots);
    const OnDevice result = OutputOnDevice(out, slots.size(), rows.columns);
    Rows shape = rows;
    shape.base = table.data();
    Done(cuda::GatherAsync(shape, device_slots.As<std::uint32_t>(), slots.size(),
                           {result.data(), out.stride_bytes, out.element}, nullptr));
    result.CopyTo(out.base);
  }

  void Pool(const Rows& rows, const Bags& bags, const Output& out) override {
    const OnDevice table = TableOnDevice(rows.base, rows, SlotsEnd(bags.slots));
    const OnDevice slots(bags.slots);
    const OnDevice offsets(OffsetsOf(bags.lengths));
    const OnDevice weights(bags.weights, bags.slots.size() * sizeof(float));
    const OnDevice result = OutputOnDevice(out, bags.lengths.size(), rows.columns);
    Rows shape = rows;
    shape.base = table.data();
    const cuda::DeviceBags device_bags{slots.As<std::uint32_t>(), offsets.As<std::uint32_t>(),
                                       bags.weights == nullptr ? nullptr : weights.As<float>(),
                                       bags.lengths.size()};
    Done(cuda::PoolAsync(shape, device_bags, {result.data(), out.stride_bytes, out.element},
                         nullptr));
    result.CopyTo(out.base);
  }

  void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths) override {
    const OnDevice table = TableOnDevice(rows.base, ShapeOf(rows), lengths.size());
    const OnDevice device_lengths(lengths);
    MutableRows shape = rows;
    shape.base = table.data();
    Done(cuda::DivideRowsAsync(shape, device_lengths.As<std::uint32_t>(), lengths.size(), nullptr));
    table.CopyTo(rows.base);
  }

  void Convert(const Input& in, const Output& out, std::size_t row_count,
               std::uint32_t columns) override {
    const OnDevice source = InputOnDevice(in, row_count, columns);
    const OnDevice result = OutputOnDevice(out, row_count, columns);
    Done(cuda::ConvertAsync({source.data(), in.stride_bytes, in.element},
                            {result.data(), out.stride_bytes, out.element}, row_count, columns,
                            nullptr));
    result.CopyTo(out.base);
  }

  // The grouping's ids become slots 0, 1, ...; their order is the same. A step of SGD from zeros
  // with learning rate -1 leaves a slot's sum.
  void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                   std::size_t last, std::span<float> sums, std::size_t stride) override {
    const auto unique = static_cast<std::uint32_t>(grouping.ids.size());
    std::vector<std::uint32_t> slots(grouping.positions.size());
    for (std::uint32_t s = 0; s < unique; ++s) {
      std::fill(slots.begin() + grouping.offsets[s], slots.begin() + grouping.offsets[s + 1], s);
    }
    const OnDevice device_slots(slots);
    const OnDevice positions(grouping.positions);
    const GradientsOnDevice on_device(gradients, grouping.positions.size());
    const std::size_t partial_bytes = cuda::PartialSumsBytes(slots.size(), gradients.columns);
    const OnDevice partials(nullptr, partial_bytes);
    std::vector<float> all(unique * stride);
    const OnDevice result(all);
    StepRows rows;
    rows.weights = {result.data(), stride * sizeof(float), gradients.columns, Element::kFloat32};
    rows.dim = gradients.columns;
    Done(cuda::UpdateAsync(
        {.rule = OptimizerKind::kSgd, .learning_rate = -1.0f}, rows,
        {device_slots.As<std::uint32_t>(), positions.As<std::uint32_t>(), slots.size(), unique},
        on_device.gradients, /*step=*/1, {partials.data(), partial_bytes}, nullptr));
    result.CopyTo(all.data());
    for (std::size_t i = first; i < last; ++i) {
      std::copy_n(&all[i * stride], gradients.columns, &sums[(i - first) * stride]);
    }
  }

  void Step(const StepParameters& parameters, const StepRows& rows,
            const StepBatch& batch) override {
    if (batch.gradient_rows != nullptr) return StepPacked(parameters, rows, batch);
    const std::size_t end = SlotsEnd(batch.slots);
    const std::size_t columns = rows.weights.columns;
    const std::size_t state_bytes =
        end * ElementStateArrays(parameters.rule) * columns * sizeof(float);
    const OnDevice weights = TableOnDevice(rows.weights.base, ShapeOf(rows.weights), end);
    const OnDevice row_state(rows.row_state, end * sizeof(float));
    const OnDevice element_state(rows.element_state, state_bytes);
    const OnDevice slots(batch.slots);
    const OnDevice gradients(
        batch.gradients,
        BytesOf(batch.slots.size(), batch.stride * sizeof(float), columns * sizeof(float)));
    const OnDevice squares(batch.row_sum_squares, batch.slots.size() * sizeof(float));
    StepRows shape = rows;
    shape.weights.base = weights.data();
    shape.row_state = row_state.As<float>();
    shape.element_state = element_state.As<float>();
    Done(cuda::StepAsync(
        parameters, shape,
        {slots.As<std::uint32_t>(), batch.slots.size(), gradients.As<float>(), batch.stride,
         batch.row_sum_squares == nullptr ? nullptr : squares.As<float>(), batch.step},
        nullptr));
    weights.CopyTo(rows.weights.base);
    if (RowStateFloats(parameters.rule) != 0) row_state.CopyTo(rows.row_state);
    element_state.CopyTo(rows.element_state);
  }

  // A device has no rows of the host to read: they go there as one array, as sums of one gradient.
  void StepPacked(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch) {
    std::vector<float> gradients;
    for (std::size_t i = 0; i < batch.slots.size(); ++i) {
      for (std::uint32_t c = 0; c < rows.weights.columns; ++c) {
        gradients.push_back(0.0f + batch.gradient_rows[i][c]);
      }
    }
    StepBatch packed = batch;
    packed.gradient_rows = nullptr;
    packed.gradients = gradients.data();
    packed.stride = rows.weights.columns;
    Step(parameters, rows, packed);
  }

  void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                  std::size_t row_count) override {
    const OnDevice table =
        TableOnDevice(rows.weights.base, ShapeOf(rows.weights), first_slot + row_count);
    InitRows shape = rows;
    shape.weights.base = table.data();
    Done(cuda::InitializeAsync(parameters, shape, first_slot, row_count, nullptr));
    table.CopyTo(rows.weights.base);
  }

 private:
  struct GradientsOnDevice {
    GradientsOnDevice(const Gradients& host, std::size_t positions)
        : rows(InputOnDevice(host.rows, RowCount(host, positions), host.columns)),
          row_of(host.row_of, positions * sizeof(std::uint32_t)),
          factors(host.factors, positions * sizeof(float)),
          gradients{{rows.data(), host.rows.stride_bytes, host.rows.element},
                    host.columns,
                    host.row_of == nullptr ? nullptr : row_of.As<std::uint32_t>(),
                    host.factors == nullptr ? nullptr : factors.As<float>(),
                    host.clip} {}
    static std::size_t RowCount(const Gradients& host, std::size_t positions) {
      if (host.row_of == nullptr) return positions;
      return SlotsEnd({host.row_of, positions});
    }
    OnDevice rows;
    OnDevice row_of;
    OnDevice factors;
    cuda::DeviceGradients gradients;
  };

  static void Done(int error) { EXPECT_EQ(error, 0) << cuda::ErrorText(error); }
};

}  // namespace

std::vector<KernelSetFactory> KernelSets() {
  const auto make = []() -> std::unique_ptr<KernelSet> {
    if (cuda::DeviceCount() == 0) return nullptr;
    return std::make_unique<DeviceKernels>();
  };
  return {{"Device", make, "no CUDA device on this machine"}};
}

}  // namespace embla::kernels
