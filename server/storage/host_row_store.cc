#include "server/storage/host_row_store.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/initialize.h"
#include "server/storage/row_layout.h"

namespace embla {
namespace {

// Bytes of rows that one piece of parallel work touches: enough to pay for handing it out, little
// enough to even out threads.
constexpr std::size_t kGrainBytes = 256 << 10;

std::size_t GrainRows(std::size_t row_bytes) {
  return std::max<std::size_t>(1, kGrainBytes / std::max<std::size_t>(1, row_bytes));
}

}  // namespace

std::size_t HostRowStore::BytesNeeded(const TableSpec& spec, const Slice& slice) {
  return LayoutOf(spec, slice).total();
}

absl::StatusOr<std::unique_ptr<HostRowStore>> HostRowStore::Create(const TableSpec& spec,
                                                                   const Slice& slice,
                                                                   MemoryBudget& budget,
                                                                   ThreadPool& pool, NewRows rows) {
  EMBLA_RETURN_IF_ERROR(CheckRowCount(spec, slice));
  const RowLayout layout = LayoutOf(spec, slice);
  const auto map = [&](std::size_t size) {
    return rows == NewRows::kUnset ? budget.kept().Map(size) : MemoryArena::Map(size);
  };
  Arenas arenas;
  EMBLA_ASSIGN_OR_RETURN(arenas.grant, budget.Take(layout.total()));
  EMBLA_ASSIGN_OR_RETURN(arenas.weights, map(layout.weights));
  EMBLA_ASSIGN_OR_RETURN(arenas.row_state, map(layout.row_state));
  EMBLA_ASSIGN_OR_RETURN(arenas.element_state, map(layout.element_state));
  std::unique_ptr<HostRowStore> store(
      new HostRowStore(spec, slice, std::move(arenas), budget.kept(), pool));
  if (rows == NewRows::kInitial) EMBLA_RETURN_IF_ERROR(store->ResetRows(0, store->slots()));
  return store;
}

HostRowStore::HostRowStore(const TableSpec& spec, const Slice& slice, Arenas arenas,
                           KeptMemory& kept, ThreadPool& pool)
    : slots_(static_cast<std::uint32_t>(slice.rows())),
      columns_{slice.column_begin, slice.column_end},
      dtype_(spec.dtype),
      init_(InitParametersOf(spec)),
      optimizer_(spec),
      arenas_(std::move(arenas)),
      rows_(RowsIn({arenas_.weights.data(), arenas_.row_state.data(), arenas_.element_state.data()},
                   spec, slice)),
      kept_(kept),
      pool_(pool) {}

HostRowStore::~HostRowStore() {
  kept_.Keep(std::move(arenas_.weights));
  kept_.Keep(std::move(arenas_.row_state));
  kept_.Keep(std::move(arenas_.element_state));
}

kernels::Rows HostRowStore::View(ColumnRange columns) const {
  const kernels::MutableRows view = ColumnsOf(rows_, columns);
  return {view.base, view.stride_bytes, view.columns, view.element};
}

absl::Status HostRowStore::Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                                  const kernels::Output& out) const {
  const kernels::Rows view = View(columns);
  pool_.ParallelFor(slots.size(), GrainRows(view.stride_bytes),
                    [&](std::size_t begin, std::size_t end) {
                      kernels::Output part = out;
                      part.base = static_cast<std::byte*>(out.base) + begin * out.stride_bytes;
                      const auto range = slots.subspan(begin, end - begin);
                      gather_prefetch_.Run(range.size(), [&](kernels::PrefetchTuning tuning) {
                        kernels::Gather(view, range, part, tuning);
                      });
                    });
  return absl::OkStatus();
}

absl::Status HostRowStore::Pool(const kernels::Bags& bags, ColumnRange columns,
                                const kernels::Output& out) const {
  const kernels::Rows view = View(columns);
  // Pieces of about equal ids: piece p is bags [first_bag[p], first_bag[p + 1]).
  std::vector<std::size_t> first_bag = {0};
  std::vector<std::size_t> first_id = {0};
  const std::size_t grain = GrainRows(view.stride_bytes);
  std::size_t id = 0;
  for (std::size_t b = 0; b < bags.lengths.size(); ++b) {
    id += bags.lengths[b];
    if (id - first_id.back() + (b + 1 - first_bag.back()) < grain && b + 1 < bags.lengths.size()) {
      continue;
    }
    first_bag.push_back(b + 1);
    first_id.push_back(id);
  }
  pool_.ParallelFor(first_bag.size() - 1, 1, [&](std::size_t p, std::size_t) {
    const std::size_t bag = first_bag[p];
    const std::size_t begin = first_id[p];
    const kernels::Bags part{
        bags.slots.subspan(begin, first_id[p + 1] - begin),
        bags.lengths.subspan(bag, first_bag[p + 1] - bag),
        bags.weights == nullptr ? nullptr : bags.weights + begin,
    };
    kernels::Output target = out;
    target.base = static_cast<std::byte*>(out.base) + bag * out.stride_bytes;
    pool_prefetch_.Run(part.slots.size(), [&](kernels::PrefetchTuning tuning) {
      kernels::Pool(view, part, target, tuning);
    });
  });
  return absl::OkStatus();
}

absl::Status HostRowStore::Step(const RowStepBatch& batch) {
  const bool needs_sums = optimizer_.NeedsRowSumSquares(columns_.size());
  EMBLA_CHECK(!needs_sums || batch.row_sum_squares.size() == batch.slots.size());
  const std::size_t row_bytes =
      rows_.weights.stride_bytes + optimizer_.StateFloats(columns_.size()) * sizeof(float);
  const kernels::StepParameters parameters = optimizer_.step_parameters(batch.learning_rate);
  pool_.ParallelFor(
      batch.slots.size(), GrainRows(row_bytes), [&](std::size_t begin, std::size_t end) {
        const RowStepBatch piece = batch.Piece(begin, end);
        const kernels::StepBatch part{
            piece.slots,  piece.gradients.data(),
            piece.stride, needs_sums ? piece.row_sum_squares.data() : nullptr,
            piece.step,   piece.gradient_rows.empty() ? nullptr : piece.gradient_rows.data()};
        step_prefetch_.Run(part.slots.size(), [&](kernels::PrefetchTuning tuning) {
          kernels::Step(parameters, rows_, part, tuning);
        });
      });
  return absl::OkStatus();
}

absl::Status HostRowStore::SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) {
  return optimizer_.Set(optimizer, rounding);
}

std::size_t HostRowStore::StateFloats(std::uint32_t columns) const {
  return optimizer_.StateFloats(columns);
}

std::size_t HostRowStore::memory_bytes() const { return arenas_.grant.bytes(); }

std::span<float> HostRowStore::ElementState(std::uint32_t slot, std::size_t array) const {
  const std::size_t arrays = kernels::ElementStateArrays(optimizer_.step_parameters().rule);
  return {rows_.element_state + (slot * arrays + array) * columns_.size(), columns_.size()};
}

absl::Status HostRowStore::ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                    const RowImages& images) const {
  const kernels::Rows view = View(columns);
  const std::size_t row_bytes = kernels::RowBytes(view.element, view.columns);
  const std::size_t floats = StateFloats(columns.size());
  const auto rule = optimizer_.step_parameters().rule;
  EMBLA_CHECK(images.weights.size() == slots.size() * row_bytes);
  EMBLA_CHECK(images.state.size() == slots.size() * floats);
  kernels::Gather(view, slots, {images.weights.data(), row_bytes, view.element});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    auto state = images.state.begin() + i * floats;
    if (kernels::RowStateFloats(rule) != 0) *state++ = rows_.row_state[slots[i]];
    for (std::size_t k = 0; k < kernels::ElementStateArrays(rule); ++k) {
      const auto array = ElementState(slots[i], k).subspan(columns.begin - columns_.begin);
      state = std::copy_n(array.begin(), columns.size(), state);
    }
  }
  return absl::OkStatus();
}

absl::Status HostRowStore::WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                     const ConstRowImages& images) {
  const kernels::Rows view = View(columns);
  const std::size_t row_bytes = kernels::RowBytes(view.element, view.columns);
  const std::size_t floats = StateFloats(columns.size());
  const auto rule = optimizer_.step_parameters().rule;
  EMBLA_CHECK(images.weights.size() == slots.size() * row_bytes);
  EMBLA_CHECK(images.state.size() == slots.size() * floats);
  const std::size_t skipped = columns.begin - columns_.begin;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::byte* const row = arenas_.weights.data() + slots[i] * view.stride_bytes;
    std::memcpy(row + skipped * ElementBytes(dtype_), images.weights.data() + i * row_bytes,
                row_bytes);
    auto state = images.state.begin() + i * floats;
    if (kernels::RowStateFloats(rule) != 0) rows_.row_state[slots[i]] = *state++;
    for (std::size_t k = 0; k < kernels::ElementStateArrays(rule); ++k) {
      std::copy_n(state, columns.size(), ElementState(slots[i], k).begin() + skipped);
      state += columns.size();
    }
  }
  return absl::OkStatus();
}

absl::Status HostRowStore::ResetRows(std::uint32_t first, std::uint32_t count) {
  EMBLA_CHECK(first <= slots_ && count <= slots_ - first);
  const auto rule = optimizer_.step_parameters().rule;
  const kernels::InitRows rows{rows_.weights, rows_.first_row, rows_.column_begin};
  const std::size_t element_floats =
      std::size_t{kernels::ElementStateArrays(rule)} * columns_.size();
  pool_.ParallelFor(count, GrainRows(rows_.weights.stride_bytes) * 16,
                    [&](std::size_t begin, std::size_t end) {
                      const std::size_t slot = first + begin;
                      const std::size_t n = end - begin;
                      kernels::Initialize(init_, rows, slot, n);
                      if (kernels::RowStateFloats(rule) != 0) {
                        std::fill_n(rows_.row_state + slot, n, optimizer_.initial_state());
                      }
                      if (element_floats != 0) {
                        std::fill_n(rows_.element_state + slot * element_floats, n * element_floats,
                                    optimizer_.initial_state());
                      }
                    });
  return absl::OkStatus();
}

absl::Status HostRowStore::ResetRowsTo(std::span<const std::uint32_t> slots,
                                       std::span<const RowId> ids) {
  EMBLA_CHECK(slots.size() == ids.size());
  const auto rule = optimizer_.step_parameters().rule;
  const std::size_t element_floats =
      std::size_t{kernels::ElementStateArrays(rule)} * columns_.size();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::uint32_t slot = slots[i];
    EMBLA_CHECK(slot < slots_);
    kernels::MutableRows row = rows_.weights;
    row.base = arenas_.weights.data() + std::size_t{slot} * row.stride_bytes;
    kernels::Initialize(init_, {row, ToInt(ids[i]), rows_.column_begin}, 0, 1);
    if (kernels::RowStateFloats(rule) != 0) rows_.row_state[slot] = optimizer_.initial_state();
    if (element_floats == 0) continue;
    std::fill_n(rows_.element_state + std::size_t{slot} * element_floats, element_floats,
                optimizer_.initial_state());
  }
  return absl::OkStatus();
}

absl::Status HostRowStore::GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                                         const kernels::Output& out) const {
  GatherInitialRows(init_, dtype_, ids, columns, out);
  return absl::OkStatus();
}

}  // namespace embla
