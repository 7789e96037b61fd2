// Updates of rows on a GPU: how their gradients come there, and what is queued for them.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/gpu/kernel_table.h"
#include "server/storage/device_row_store.h"

namespace embla {
namespace {

// A position of an update: its slot, and its gradient's row and factor. Bags, which have as much as
// the latter two, are fewer.
constexpr std::size_t kExpandedBytes = sizeof(std::uint32_t) + sizeof(float);
constexpr std::size_t kPositionBytes = sizeof(std::uint32_t) + kExpandedBytes;

constexpr std::size_t Aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Whether values[i] == i.
bool CountsUp(std::span<const std::uint32_t> values) {
  std::uint32_t next = 0;
  return std::all_of(values.begin(), values.end(),
                     [&next](std::uint32_t value) { return value == next++; });
}

// Whether kernels load such gradients in words, and nobody's memory byte by byte over the link.
bool LoadsInWords(const kernels::Gradients& gradients) {
  const kernels::Input& rows = gradients.rows;
  const bool has_header = rows.element == kernels::Element::kInt8Rowwise;
  const auto address = reinterpret_cast<std::uintptr_t>(rows.base);
  return (address | rows.stride_bytes) % (has_header ? 8 : 16) == 0 && gradients.columns % 8 == 0;
}

}  // namespace

absl::StatusOr<DeviceRowStore::UpdatePlan> DeviceRowStore::PlanOf(
    std::size_t positions, const kernels::Gradients& gradients, std::size_t gradient_rows) const {
  const kernels::Input& rows = gradients.rows;
  UpdatePlan plan;
  plan.rows = std::min(positions, gradient_rows);
  plan.row_bytes = kernels::RowBytes(rows.element, gradients.columns);
  const std::size_t bytes = plan.rows * plan.row_bytes;
  const bool is_pinned =
      plan.rows > 0 &&
      lanes_.device().IsPinned(rows.base, (gradient_rows - 1) * rows.stride_bytes + plan.row_bytes);
  if (is_pinned && positions >= gradient_rows && rows.stride_bytes == plan.row_bytes) {
    plan.way = Way::kCopied;
  } else if (is_pinned && positions <= gradient_rows && LoadsInWords(gradients)) {
    plan.way = Way::kInPlace;  // None is read twice.
  } else {
    plan.way = bytes > lanes_.piece_bytes() ? Way::kInPieces : Way::kWithSlots;
    plan.by_position = positions < gradient_rows;
  }
  if (plan.way == Way::kCopied || plan.way == Way::kInPieces) {
    plan.workspace_begin = Aligned(bytes);
  }
  EMBLA_ASSIGN_OR_RETURN(plan.workspace_bytes,
                         lanes_.device().WorkspaceBytes("UpdateBytes", kernels_.update_bytes,
                                                        positions, gradients.columns));
  plan.expanded_begin = Aligned(plan.workspace_begin + plan.workspace_bytes);
  plan.scratch_bytes =
      plan.expanded_begin + (positions > gradient_rows ? positions * kExpandedBytes : 0);
  plan.in_bytes = positions * kPositionBytes + (plan.way == Way::kWithSlots ? bytes : 0);
  return plan;
}

absl::Status DeviceRowStore::ReserveUpdate(std::size_t positions,
                                           const kernels::Gradients& gradients,
                                           std::size_t gradient_rows) {
  EMBLA_ASSIGN_OR_RETURN(const UpdatePlan plan, PlanOf(positions, gradients, gradient_rows));
  return lanes_.Reserve({.in_bytes = plan.in_bytes,
                         .out_bytes = sizeof(std::uint64_t),
                         .scratch_bytes = plan.scratch_bytes});
}

absl::StatusOr<std::size_t> DeviceRowStore::Update(const GradientBatch& batch) {
  if (batch.slots.empty()) return 0;
  EMBLA_ASSIGN_OR_RETURN(const UpdatePlan plan,
                         PlanOf(batch.slots.size(), batch.gradients, batch.gradient_rows));
  if (plan.way == Way::kInPieces) EMBLA_RETURN_IF_ERROR(StopOnError(SendGradients(batch, plan)));
  std::uint64_t stepped = 0;
  // One piece: which gradients belong together is decided among all of them.
  const std::size_t count = batch.slots.size();
  EMBLA_RETURN_IF_ERROR(StopOnError(lanes_.Run(
      count, [&](std::size_t) { return count; },
      [&](Lane& lane, std::size_t, std::size_t) { return QueueUpdate(lane, batch, plan); },
      [&](Lane& lane, std::size_t, std::size_t) {
        std::memcpy(&stepped, lane.out.host(), sizeof(stepped));
      })));
  return stepped;
}

absl::Status DeviceRowStore::SendGradients(const GradientBatch& batch,
                                           const UpdatePlan& plan) const {
  return lanes_.Run(
      plan.rows, plan.row_bytes,
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const std::size_t bytes = (end - begin) * plan.row_bytes;
        EMBLA_RETURN_IF_ERROR(lane.in.Reset(lanes_.device(), bytes));
        PackGradients(batch, plan, begin, end, lane.in.Take<std::byte>(bytes).host);
        return lane.SendTo(lanes_.scratch() + begin * plan.row_bytes);
      },
      [](Lane&, std::size_t, std::size_t) {});
}

void DeviceRowStore::PackGradients(const GradientBatch& batch, const UpdatePlan& plan,
                                   std::size_t begin, std::size_t end, std::byte* to) {
  const kernels::Gradients& gradients = batch.gradients;
  const auto* const base = static_cast<const std::byte*>(gradients.rows.base);
  const std::size_t stride = gradients.rows.stride_bytes;
  if (!plan.by_position && stride == plan.row_bytes) {
    std::memcpy(to, base + begin * stride, (end - begin) * stride);
    return;
  }
  const bool by_row_of = plan.by_position && gradients.row_of != nullptr;
  for (std::size_t i = begin; i < end; ++i, to += plan.row_bytes) {
    std::memcpy(to, base + (by_row_of ? gradients.row_of[i] : i) * stride, plan.row_bytes);
  }
}

absl::StatusOr<kernels::Input> DeviceRowStore::QueueGradients(Lane& lane,
                                                              const GradientBatch& batch,
                                                              const UpdatePlan& plan) const {
  const kernels::Input& rows = batch.gradients.rows;
  const std::size_t bytes = plan.rows * plan.row_bytes;
  kernels::Input sent = {lanes_.scratch(), plan.row_bytes, rows.element};
  switch (plan.way) {
    case Way::kCopied:
      EMBLA_RETURN_IF_ERROR(lane.SendFrom(rows.base, bytes, lanes_.scratch()));
      return sent;
    case Way::kInPlace:
      lane.direct_bytes_in += bytes;
      return rows;
    case Way::kWithSlots: {
      const auto packed = lane.in.Take<std::byte>(bytes);
      PackGradients(batch, plan, 0, plan.rows, packed.host);
      sent.base = packed.device;
      return sent;
    }
    case Way::kInPieces:
      return sent;
  }
  EMBLA_CHECK(false);
}

DeviceRowStore::SentBags DeviceRowStore::PutBags(Lane& lane, const GradientBatch& batch) {
  if (batch.bag_lengths.empty()) return {};
  SentBags bags;
  const auto offsets = lane.in.Take<std::uint32_t>(batch.bag_lengths.size() + 1);
  offsets.host[0] = 0;
  std::partial_sum(batch.bag_lengths.begin(), batch.bag_lengths.end(), offsets.host + 1);
  bags.offsets = offsets.device;
  if (!batch.bag_factors.empty()) bags.factors = lane.in.Put(batch.bag_factors);
  return bags;
}

// A factor comes to its positions as a row of one column does.
absl::Status DeviceRowStore::QueueExpansion(Lane& lane, const GradientBatch& batch,
                                            const UpdatePlan& plan, const SentBags& bags,
                                            kernels::cuda::DeviceGradients& gradients) const {
  if (bags.offsets == nullptr) return absl::OkStatus();
  const std::size_t count = batch.slots.size();
  std::byte* const expanded = lanes_.scratch() + plan.expanded_begin;
  auto* const row_of = reinterpret_cast<std::uint32_t*>(expanded);
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch("ExpandBags", kernels_.expand_bags, bags.offsets,
                                            batch.bag_lengths.size(), count, row_of,
                                            static_cast<float*>(nullptr)));
  gradients.row_of = row_of;
  if (bags.factors == nullptr) return absl::OkStatus();
  auto* const factors = reinterpret_cast<float*>(row_of + count);
  gradients.factors = factors;
  return lane.stream->Launch(
      "Gather", kernels_.gather,
      kernels::Rows{bags.factors, sizeof(float), 1, kernels::Element::kFloat32}, row_of, count,
      kernels::Output{factors, sizeof(float), kernels::Element::kFloat32});
}

absl::Status DeviceRowStore::QueueUpdate(Lane& lane, const GradientBatch& batch,
                                         const UpdatePlan& plan) const {
  const std::size_t count = batch.slots.size();
  EMBLA_RETURN_IF_ERROR(lane.in.Reset(lanes_.device(), plan.in_bytes));
  EMBLA_RETURN_IF_ERROR(lane.out.Reset(lanes_.device(), sizeof(std::uint64_t)));
  kernels::cuda::DeviceUpdateBatch update;
  EMBLA_ASSIGN_OR_RETURN(update.gradients.rows, QueueGradients(lane, batch, plan));
  update.slots = lane.in.Put(batch.slots);
  update.count = count;
  update.slot_limit = slots_;
  update.gradients.columns = batch.gradients.columns;
  update.gradients.clip = batch.gradients.clip;
  const SentBags bags = PutBags(lane, batch);
  if (batch.gradients.row_of != nullptr && !plan.by_position) {
    const std::span row_of(batch.gradients.row_of, count);
    if (!CountsUp(row_of)) update.gradients.row_of = lane.in.Put(row_of);
  }
  if (batch.gradients.factors != nullptr) {
    update.gradients.factors = lane.in.Put(std::span(batch.gradients.factors, count));
  }
  update.step = batch.step;
  update.rows_stepped = lane.out.Take<std::uint64_t>(1).device;
  EMBLA_RETURN_IF_ERROR(lane.Send());
  EMBLA_RETURN_IF_ERROR(QueueExpansion(lane, batch, plan, bags, update.gradients));
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch(
      "Fill", kernels_.fill, reinterpret_cast<float*>(update.rows_stepped), std::size_t{2}, 0.0f));
  EMBLA_RETURN_IF_ERROR(lane.stream->Launch(
      "Update", kernels_.update, optimizer_.step_parameters(batch.learning_rate), rows_, update,
      kernels::cuda::Workspace{lanes_.scratch() + plan.workspace_begin, plan.workspace_bytes}));
  return lane.Fetch();
}

}  // namespace embla
