#include "bench/ceilings/row_work.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/memory_arena.h"
#include "kernels/lookup.h"
#include "kernels/optimizer_step.h"
#include "server/storage/prefetch_tuner.h"

namespace embla::bench {
namespace {

MemoryArena MapFloats(std::size_t floats) {
  auto arena = MemoryArena::Map(floats * sizeof(float));
  EMBLA_CHECK(arena.ok());
  return *std::move(arena);
}

float* FloatsOf(const MemoryArena& arena) { return reinterpret_cast<float*>(arena.data()); }

}  // namespace

class RowWork::Table {
 public:
  explicit Table(std::uint32_t dim)
      : dim_(dim),
        gathered_(MapFloats(std::size_t{kWorkRows} * dim)),
        stepped_(MapFloats(std::size_t{kWorkRows} * dim)),
        state_(MapFloats(kWorkRows)) {
    float* next = FloatsOf(gathered_);
    for (std::uint32_t row = 0; row < kWorkRows; ++row, next += dim) {
      std::fill_n(next, dim, static_cast<float>(row));
    }
    // Pages cost time when they are first written.
    std::fill_n(FloatsOf(stepped_), std::size_t{kWorkRows} * dim, 0.0f);
    std::fill_n(FloatsOf(state_), kWorkRows, 0.0f);
    parameters_.rule = OptimizerKind::kRowwiseAdagrad;
  }

  void Gather(std::span<const std::int64_t> ids, std::byte* reply) {
    const kernels::Rows rows = {gathered_.data(), dim_ * sizeof(float), dim_,
                                kernels::Element::kFloat32};
    const kernels::Output out = {reply, dim_ * sizeof(float), kernels::Element::kFloat32};
    const std::span<const std::uint32_t> slots = SlotsOf(ids);
    gather_tuner_.Run(slots.size(), [&](kernels::PrefetchTuning tuning) {
      kernels::Gather(rows, slots, out, tuning);
    });
  }

  void Step(std::span<const std::int64_t> ids, const float* gradients, float* reply) {
    kernels::StepRows rows;
    rows.weights = {stepped_.data(), dim_ * sizeof(float), dim_, kernels::Element::kFloat32};
    rows.row_state = FloatsOf(state_);
    rows.dim = dim_;
    const std::span<const std::uint32_t> slots = SlotsOf(ids);
    step_tuner_.Run(slots.size(), [&](kernels::PrefetchTuning tuning) {
      kernels::Step(parameters_, rows, {slots, gradients, dim_, nullptr, 1}, tuning);
    });
    reply[0] = FloatsOf(stepped_)[std::size_t{slots.front()} * dim_];
    reply[1] = FloatsOf(stepped_)[std::size_t{slots.back()} * dim_ + dim_ - 1];
  }

 private:
  std::span<const std::uint32_t> SlotsOf(std::span<const std::int64_t> ids) {
    slots_.resize(ids.size());
    std::ranges::transform(ids, slots_.begin(),
                           [](std::int64_t id) { return static_cast<std::uint32_t>(id); });
    return slots_;
  }

  const std::uint32_t dim_;
  const MemoryArena gathered_;
  const MemoryArena stepped_;
  const MemoryArena state_;
  kernels::StepParameters parameters_;
  PrefetchTuner gather_tuner_;
  PrefetchTuner step_tuner_;
  std::vector<std::uint32_t> slots_;
};

RowWork::RowWork() = default;
RowWork::~RowWork() = default;

void RowWork::Do(const RequestHeader& header, std::span<const std::byte> body,
                 std::span<std::byte> reply) {
  if (header.work == Work::kNone) return;
  MutexLock lock(mu_);
  std::unique_ptr<Table>& table = tables_[header.dim];
  if (table == nullptr) table = std::make_unique<Table>(header.dim);
  const std::span ids(reinterpret_cast<const std::int64_t*>(body.data()), header.ids);
  if (header.work == Work::kGather) return table->Gather(ids, reply.data());
  table->Step(ids, reinterpret_cast<const float*>(body.data() + ids.size_bytes()),
              reinterpret_cast<float*>(reply.data()));
}

}  // namespace embla::bench
