#include "server/storage/device_row_store.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/gpu/kernel_table.h"
#include "server/storage/row_layout.h"

namespace embla {
namespace {

constexpr std::size_t kSlotBytes = sizeof(std::uint32_t);
// A bag: where its slots begin, and its divisor.
constexpr std::size_t kBagBytes = 2 * sizeof(std::uint32_t);

// Packed rows on a lane to rows of `out`, from row `first` on.
void Unpack(const std::byte* rows, std::size_t row_bytes, const kernels::Output& out,
            std::size_t first, std::size_t count) {
  auto* to = static_cast<std::byte*>(out.base) + first * out.stride_bytes;
  if (out.stride_bytes == row_bytes) {
    std::memcpy(to, rows, count * row_bytes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i, to += out.stride_bytes) {
    std::memcpy(to, rows + i * row_bytes, row_bytes);
  }
}

// Destination of packed rows: straight to the caller where a copy reaches it, else by the lane.
class Landing {
 public:
  Landing(const gpu::Device& device, const kernels::Output& out, std::size_t row_bytes,
          std::size_t count)
      : out_(out),
        row_bytes_(row_bytes),
        is_direct_(count > 0 && out.stride_bytes == row_bytes &&
                   device.IsPinned(out.base, count * row_bytes)) {}

  // Queues the way of rows [first, first + count), which the lane begins with.
  absl::Status Fetch(Lane& lane, std::size_t first, std::size_t count) const {
    return is_direct_ ? lane.FetchTo(At(first), count * row_bytes_) : lane.Fetch();
  }
  void Finish(const Lane& lane, std::size_t first, std::size_t count) const {
    if (!is_direct_) Unpack(lane.out.host(), row_bytes_, out_, first, count);
  }

 private:
  void* At(std::size_t row) const { return static_cast<std::byte*>(out_.base) + row * row_bytes_; }

  const kernels::Output out_;
  const std::size_t row_bytes_;
  const bool is_direct_;
};

// One array of a row's state, from what every slot has of it.
kernels::MutableRows StateRows(float* base, std::size_t floats_per_slot, std::uint32_t columns) {
  return {base, floats_per_slot * sizeof(float), columns, kernels::Element::kFloat32};
}

kernels::Rows Const(const kernels::MutableRows& rows) {
  return {rows.base, rows.stride_bytes, rows.columns, rows.element};
}

// A lane's room for a pooled bag: its row, and its sum if that is another.
std::size_t OutBytesPerBag(const kernels::Rows& rows, kernels::Element element) {
  const std::size_t sum_bytes = rows.columns * sizeof(float);
  if (element == kernels::Element::kFloat32) return sum_bytes;
  return sum_bytes + kernels::RowBytes(element, rows.columns);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRowStore>> DeviceRowStore::Create(const TableSpec& spec,
                                                                       const Slice& slice,
                                                                       MemoryBudget& budget,
                                                                       DeviceLanes& lanes,
                                                                       NewRows rows) {
  EMBLA_RETURN_IF_ERROR(CheckRowCount(spec, slice));
  const RowLayout layout = LayoutOf(spec, slice);
  gpu::Device& device = lanes.device();
  Arenas arenas;
  // The map of a ZCH table's ids is on the host.
  EMBLA_ASSIGN_OR_RETURN(arenas.grant, budget.Take(layout.total() - layout.id_map));
  EMBLA_ASSIGN_OR_RETURN(arenas.weights, device.Allocate(layout.weights));
  EMBLA_ASSIGN_OR_RETURN(arenas.row_state, device.Allocate(layout.row_state));
  EMBLA_ASSIGN_OR_RETURN(arenas.element_state, device.Allocate(layout.element_state));
  std::unique_ptr<DeviceRowStore> store(new DeviceRowStore(spec, slice, std::move(arenas), lanes));
  if (rows == NewRows::kInitial) EMBLA_RETURN_IF_ERROR(store->ResetAll());
  return store;
}

// On a stream of its own: the lanes may be in use.
absl::Status DeviceRowStore::ResetAll() const {
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Stream> stream, lanes_.device().NewStream());
  const absl::Status status = Reset(*stream, 0, slots_);
  // Also after an error: the memory may go when this returns.
  EMBLA_RETURN_IF_ERROR(stream->Synchronize());
  return status;
}

DeviceRowStore::DeviceRowStore(const TableSpec& spec, const Slice& slice, Arenas arenas,
                               DeviceLanes& lanes)
    : slots_(static_cast<std::uint32_t>(slice.rows())),
      columns_{slice.column_begin, slice.column_end},
      dtype_(spec.dtype),
      init_(InitParametersOf(spec)),
      optimizer_(spec),
      arenas_(std::move(arenas)),
      rows_(RowsIn({arenas_.weights.data(), arenas_.row_state.data(), arenas_.element_state.data()},
                   spec, slice)),
      lanes_(lanes),
      kernels_(lanes.device().kernels()) {}

absl::Status DeviceRowStore::StopOnError(const absl::Status& status) const {
  return status.ok() ? status : lanes_.device().Stop(status);
}

kernels::MutableRows DeviceRowStore::View(ColumnRange columns) const {
  return ColumnsOf(rows_, columns);
}

template <typename Use>
absl::Status DeviceRowStore::ForEachState(ColumnRange columns, const Use& use) const {
  const auto rule = optimizer_.step_parameters().rule;
  const std::size_t scalars = kernels::RowStateFloats(rule);
  if (scalars != 0) {
    EMBLA_RETURN_IF_ERROR(use(StateColumns{StateRows(rows_.row_state, 1, 1), 0}));
  }
  const std::size_t arrays = kernels::ElementStateArrays(rule);
  for (std::size_t k = 0; k < arrays; ++k) {
    float* const base =
        rows_.element_state + k * columns_.size() + (columns.begin - columns_.begin);
    EMBLA_RETURN_IF_ERROR(use(StateColumns{
        StateRows(base, arrays * columns_.size(), columns.size()), scalars + k * columns.size()}));
  }
  return absl::OkStatus();
}

absl::Status DeviceRowStore::Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                                    const kernels::Output& out) const {
  const kernels::Rows view = Const(View(columns));
  const std::size_t row_bytes = kernels::RowBytes(out.element, view.columns);
  const Landing landing(lanes_.device(), out, row_bytes, slots.size());
  return lanes_.Run(
      slots.size(), std::max(kSlotBytes, row_bytes),
      [&](Lane& lane, std::size_t begin, std::size_t end) -> absl::Status {
        const std::size_t count = end - begin;
        EMBLA_RETURN_IF_ERROR(lane.in.Reset(lanes_.device(), count * kSlotBytes));
        EMBLA_RETURN_IF_ERROR(lane.out.Reset(lanes_.device(), count * row_bytes));
        const std::uint32_t* const piece = lane.in.Put(slots.subspan(begin, count));
        std::byte* const rows = lane.out.Take<std::byte>(count * row_bytes).device;
        EMBLA_RETURN_IF_ERROR(lane.Send());
        EMBLA_RETURN_IF_ERROR(lane.stream->Launch("Gather", kernels_.gather, view, piece, count,
                                                  kernels::Output{rows, row_bytes, out.element}));
        return landing.Fetch(lane, begin, count);
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        landing.Finish(lane, begin, end - begin);
      });
}

absl::Status DeviceRowStore::Pool(const kernels::Bags& bags, ColumnRange columns,
                                  const kernels::Output& out) const {
  EMBLA_CHECK(out.element == kernels::Element::kFloat32);
  return PoolToWire(bags, {}, columns, out);
}

absl::Status DeviceRowStore::PoolToWire(const kernels::Bags& bags,
                                        std::span<const std::uint32_t> divisors,
                                        ColumnRange columns, const kernels::Output& out) const {
  const kernels::Rows view = Const(View(columns));
  const std::size_t row_bytes = kernels::RowBytes(out.element, view.columns);
  const std::size_t slot_bytes = kSlotBytes + (bags.weights == nullptr ? 0 : sizeof(float));
  const std::size_t bag_bytes = std::max(OutBytesPerBag(view, out.element), kBagBytes);
  const std::size_t bags_max = std::max<std::size_t>(1, lanes_.piece_bytes() / bag_bytes);
  const Landing landing(lanes_.device(), out, row_bytes, bags.lengths.size());
  // Slots of the piece that was cut last. A bag is never cut, however long: its sum has one order.
  std::size_t slots_begin = 0, slots_end = 0;
  const auto cut = [&](std::size_t begin) {
    slots_begin = slots_end;
    std::size_t end = begin;
    do {
      slots_end += bags.lengths[end++];
    } while (end < bags.lengths.size() && end - begin < bags_max &&
             (slots_end - slots_begin + bags.lengths[end]) * slot_bytes < lanes_.piece_bytes());
    return end;
  };
  return lanes_.Run(
      bags.lengths.size(), cut,
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const std::size_t slots = slots_end - slots_begin;
        const kernels::Bags piece{bags.slots.subspan(slots_begin, slots),
                                  bags.lengths.subspan(begin, end - begin),
                                  bags.weights == nullptr ? nullptr : bags.weights + slots_begin};
        const auto by = divisors.empty() ? divisors : divisors.subspan(begin, end - begin);
        const absl::Status queued = QueuePool(lane, piece, by, view, out.element);
        return queued.ok() ? landing.Fetch(lane, begin, end - begin) : queued;
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        landing.Finish(lane, begin, end - begin);
      });
}

absl::Status DeviceRowStore::QueuePool(Lane& lane, const kernels::Bags& bags,
                                       std::span<const std::uint32_t> divisors,
                                       const kernels::Rows& view, kernels::Element element) const {
  const std::size_t count = bags.lengths.size();
  const std::size_t row_bytes = kernels::RowBytes(element, view.columns);
  const std::size_t sum_bytes = view.columns * sizeof(float);
  EMBLA_RETURN_IF_ERROR(lane.in.Reset(
      lanes_.device(), (count + 1) * kBagBytes + bags.slots.size() * (kSlotBytes + sizeof(float))));
  EMBLA_RETURN_IF_ERROR(lane.out.Reset(lanes_.device(), count * OutBytesPerBag(view, element)));
  kernels::cuda::DeviceBags batch;
  batch.count = count;
  const auto offsets = lane.in.Take<std::uint32_t>(count + 1);
  offsets.host[0] = 0;
  for (std::size_t b = 0; b < count; ++b) {
    offsets.host[b + 1] = offsets.host[b] + bags.lengths[b];
  }
  batch.offsets = offsets.device;
  batch.slots = lane.in.Put(bags.slots);
  if (bags.weights != nullptr) {
    batch.weights = lane.in.Put(std::span(bags.weights, bags.slots.size()));
  }
  const std::uint32_t* const by = lane.in.Put(divisors);
  std::byte* const rows = lane.out.Take<std::byte>(count * row_bytes).device;
  const bool converts = element != kernels::Element::kFloat32;
  std::byte* const sums = converts ? lane.out.Behind(count * sum_bytes) : rows;
  EMBLA_RETURN_IF_ERROR(lane.Send());
  EMBLA_RETURN_IF_ERROR(
      lane.stream->Launch("Pool", kernels_.pool, view, batch,
                          kernels::Output{sums, sum_bytes, kernels::Element::kFloat32}));
  if (!divisors.empty()) {
    EMBLA_RETURN_IF_ERROR(lane.stream->Launch(
        "DivideRows", kernels_.divide_rows,
        kernels::MutableRows{sums, sum_bytes, view.columns, kernels::Element::kFloat32}, by,
        count));
  }
  if (!converts) return absl::OkStatus();
  return lane.stream->Launch("Convert", kernels_.convert,
                             kernels::Input{sums, sum_bytes, kernels::Element::kFloat32},
                             kernels::Output{rows, row_bytes, element}, count, view.columns);
}

absl::Status DeviceRowStore::Step(const RowStepBatch& batch) {
  const bool needs_sums = optimizer_.NeedsRowSumSquares(columns_.size());
  EMBLA_CHECK(!needs_sums || batch.row_sum_squares.size() == batch.slots.size());
  const std::size_t item_bytes = kSlotBytes + sizeof(float) + columns_.size() * sizeof(float);
  return StopOnError(lanes_.Run(
      batch.slots.size(), item_bytes,
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        RowStepBatch piece = batch.Piece(begin, end);
        if (!needs_sums) piece.row_sum_squares = {};
        return QueueStep(lane, piece);
      },
      [](Lane&, std::size_t, std::size_t) {}));
}

absl::Status DeviceRowStore::QueueStep(Lane& lane, const RowStepBatch& batch) const {
  const std::size_t count = batch.slots.size();
  const std::size_t columns = columns_.size();
  EMBLA_RETURN_IF_ERROR(
      lane.in.Reset(lanes_.device(), count * (kSlotBytes + (columns + 1) * sizeof(float))));
  kernels::cuda::DeviceStepBatch step;
  step.slots = lane.in.Put(batch.slots);
  step.count = count;
  const auto gradients = lane.in.Take<float>(count * columns);
  for (std::size_t i = 0; i < count; ++i) {
    float* const row = gradients.host + i * columns;
    if (batch.gradient_rows.empty()) {
      std::copy_n(batch.gradients.data() + i * batch.stride, columns, row);
    } else {
      std::transform(batch.gradient_rows[i], batch.gradient_rows[i] + columns, row,
                     [](float gradient) { return 0.0f + gradient; });  // -0 becomes +0.
    }
  }
  step.gradients = gradients.device;
  step.stride = columns;
  if (!batch.row_sum_squares.empty()) step.row_sum_squares = lane.in.Put(batch.row_sum_squares);
  step.step = batch.step;
  EMBLA_RETURN_IF_ERROR(lane.Send());
  return lane.stream->Launch("Step", kernels_.step, optimizer_.step_parameters(batch.learning_rate),
                             rows_, step);
}

absl::Status DeviceRowStore::SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) {
  return optimizer_.Set(optimizer, rounding);
}

std::size_t DeviceRowStore::StateFloats(std::uint32_t columns) const {
  return optimizer_.StateFloats(columns);
}

absl::Status DeviceRowStore::ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                      const RowImages& images) const {
  const std::size_t row_bytes = RowBytes(dtype_, columns.size());
  const std::size_t floats = StateFloats(columns.size());
  EMBLA_CHECK(images.weights.size() == slots.size() * row_bytes);
  EMBLA_CHECK(images.state.size() == slots.size() * floats);
  return lanes_.Run(
      slots.size(), std::max(kSlotBytes, row_bytes + floats * sizeof(float)),
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        return QueueRead(lane, slots.subspan(begin, end - begin), columns);
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const std::size_t weight_bytes = (end - begin) * row_bytes;
        std::memcpy(images.weights.data() + begin * row_bytes, lane.out.host(), weight_bytes);
        if (floats == 0) return;
        std::memcpy(images.state.data() + begin * floats,
                    lane.out.host() + LaneCargo::Padded(weight_bytes),
                    (end - begin) * floats * sizeof(float));
      });
}

// Weights, then state.
absl::Status DeviceRowStore::QueueRead(Lane& lane, std::span<const std::uint32_t> slots,
                                       ColumnRange columns) const {
  const kernels::Rows view = Const(View(columns));
  const std::size_t row_bytes = kernels::RowBytes(view.element, view.columns);
  const std::size_t floats = StateFloats(columns.size());
  EMBLA_RETURN_IF_ERROR(lane.in.Reset(lanes_.device(), slots.size() * kSlotBytes));
  EMBLA_RETURN_IF_ERROR(
      lane.out.Reset(lanes_.device(), slots.size() * (row_bytes + floats * sizeof(float))));
  const std::uint32_t* const piece = lane.in.Put(slots);
  std::byte* const weights = lane.out.Take<std::byte>(slots.size() * row_bytes).device;
  float* const state = lane.out.Take<float>(slots.size() * floats).device;
  EMBLA_RETURN_IF_ERROR(lane.Send());
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch("Gather", kernels_.gather, view, piece, slots.size(),
                                            kernels::Output{weights, row_bytes, view.element}));
  EMBLA_RETURN_IF_ERROR(ForEachState(columns, [&](const StateColumns& array) {
    return lane.stream->Launch("Gather", kernels_.gather, Const(array.rows), piece, slots.size(),
                               kernels::Output{state + array.first_float, floats * sizeof(float),
                                               kernels::Element::kFloat32});
  }));
  return lane.Fetch();
}

absl::Status DeviceRowStore::WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                       const ConstRowImages& images) {
  const std::size_t row_bytes = RowBytes(dtype_, columns.size());
  const std::size_t floats = StateFloats(columns.size());
  EMBLA_CHECK(images.weights.size() == slots.size() * row_bytes);
  EMBLA_CHECK(images.state.size() == slots.size() * floats);
  return StopOnError(lanes_.Run(
      slots.size(), kSlotBytes + row_bytes + floats * sizeof(float),
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const std::size_t count = end - begin;
        return QueueWrite(lane, slots.subspan(begin, count), columns,
                          {images.weights.subspan(begin * row_bytes, count * row_bytes),
                           images.state.subspan(begin * floats, count * floats)});
      },
      [](Lane&, std::size_t, std::size_t) {}));
}

absl::Status DeviceRowStore::QueueWrite(Lane& lane, std::span<const std::uint32_t> slots,
                                        ColumnRange columns, const ConstRowImages& images) const {
  const kernels::MutableRows view = View(columns);
  const std::size_t row_bytes = kernels::RowBytes(view.element, view.columns);
  const std::size_t floats = StateFloats(columns.size());
  EMBLA_RETURN_IF_ERROR(lane.in.Reset(lanes_.device(), slots.size() * (kSlotBytes + row_bytes) +
                                                           images.state.size() * sizeof(float)));
  const std::uint32_t* const piece = lane.in.Put(slots);
  const std::byte* const weights = lane.in.Put(images.weights);
  const float* const state = lane.in.Put(images.state);
  EMBLA_RETURN_IF_ERROR(lane.Send());
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch("Scatter", kernels_.scatter, view, piece, slots.size(),
                                            kernels::Input{weights, row_bytes, view.element}));
  return ForEachState(columns, [&](const StateColumns& array) {
    return lane.stream->Launch("Scatter", kernels_.scatter, array.rows, piece, slots.size(),
                               kernels::Input{state + array.first_float, floats * sizeof(float),
                                              kernels::Element::kFloat32});
  });
}

absl::Status DeviceRowStore::ResetRows(std::uint32_t first, std::uint32_t count) {
  EMBLA_CHECK(first <= slots_ && count <= slots_ - first);
  // One piece: nothing travels.
  return StopOnError(lanes_.Run(
      1, 0, [&](Lane& lane, std::size_t, std::size_t) { return Reset(*lane.stream, first, count); },
      [](Lane&, std::size_t, std::size_t) {}));
}

absl::Status DeviceRowStore::Reset(gpu::Stream& stream, std::uint32_t first,
                                   std::uint32_t count) const {
  EMBLA_RETURN_IF_ERROR(stream.Launch(
      "Initialize", kernels_.initialize, init_,
      kernels::InitRows{rows_.weights, rows_.first_row, rows_.column_begin}, first, count));
  const auto rule = optimizer_.step_parameters().rule;
  const std::size_t scalars = kernels::RowStateFloats(rule);
  const std::size_t elements = std::size_t{kernels::ElementStateArrays(rule)} * columns_.size();
  EMBLA_RETURN_IF_ERROR(stream.Launch("Fill", kernels_.fill, rows_.row_state + first * scalars,
                                      count * scalars, optimizer_.initial_state()));
  return stream.Launch("Fill", kernels_.fill, rows_.element_state + first * elements,
                       count * elements, optimizer_.initial_state());
}

absl::Status DeviceRowStore::ResetRowsTo(std::span<const std::uint32_t> slots,
                                         std::span<const RowId> ids) {
  EMBLA_CHECK(slots.size() == ids.size());
  std::vector<float> state(StateFloats(columns_.size()));
  optimizer_.FillInitialState(state);
  // Beside the state that all begin with: a lane has room for a piece, and asks for no more.
  const std::size_t at_once = std::max<std::size_t>(
      1, (lanes_.piece_bytes() - std::min(lanes_.piece_bytes(), state.size() * sizeof(float))) /
             (kSlotBytes + sizeof(RowId)));
  return StopOnError(lanes_.Run(
      slots.size(), [&](std::size_t begin) { return begin + at_once; },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        return QueueReset(lane, slots.subspan(begin, end - begin), ids.subspan(begin, end - begin),
                          state);
      },
      [](Lane&, std::size_t, std::size_t) {}));
}

// `state` is what all rows begin with.
absl::Status DeviceRowStore::QueueReset(Lane& lane, std::span<const std::uint32_t> slots,
                                        std::span<const RowId> ids,
                                        std::span<const float> state) const {
  const std::size_t count = slots.size();
  EMBLA_RETURN_IF_ERROR(lane.in.Reset(
      lanes_.device(), count * (kSlotBytes + sizeof(RowId)) + state.size() * sizeof(float)));
  const std::uint32_t* const piece = lane.in.Put(slots);
  const auto rows = lane.in.Take<std::int64_t>(count);
  for (std::size_t i = 0; i < count; ++i) rows.host[i] = ToInt(ids[i]);
  const float* const initial = lane.in.Put(state);
  EMBLA_RETURN_IF_ERROR(lane.Send());
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch("InitializeIds", kernels_.initialize_ids, init_,
                                            kernels::InitRows{rows_.weights, 0, rows_.column_begin},
                                            piece, rows.device, count));
  return ForEachState(columns_, [&](const StateColumns& array) {
    return lane.stream->Launch(
        "Scatter", kernels_.scatter, array.rows, piece, count,
        kernels::Input{initial + array.first_float, 0, kernels::Element::kFloat32});
  });
}

// Ids without a row: no memory of the GPU has anything of them.
absl::Status DeviceRowStore::GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                                           const kernels::Output& out) const {
  GatherInitialRows(init_, dtype_, ids, columns, out);
  return lanes_.device().health();
}

}  // namespace embla
