#include "core/planner/problem/cost_model.h"

#include <algorithm>
#include <cmath>

#include "core/planner/problem/embla_cost.h"
#include "core/planner/problem/torchrec_cost.h"

namespace embla::planner {

std::unique_ptr<CostModel> MakeCostModel(const Problem& problem) {
  if (problem.cost == CostKind::kEmbla) return std::make_unique<EmblaCost>(problem);
  return std::make_unique<TorchRecCost>(problem);
}

double SyncMs(const Problem& problem, double bytes) {
  if (problem.replicas <= 1 || problem.pipeline == Pipeline::kInference) return 0;
  // Ring all-reduce: every copy sends and receives 2 (R - 1) / R of the bytes.
  const double groups = problem.replicas;
  const double sent = bytes * 2 * (groups - 1) / groups;
  const double per_ms = problem.topology.bandwidth.intra_host * 1073741824.0 / 1000.0;
  return sent / per_ms / problem.sync_period_steps;
}

double ReservedBytes(const Problem& problem) {
  const Reservation& reservation = problem.reservation;
  if (reservation.kind == Reservation::Kind::kFixed) return 0;
  // TorchRec's multipliers: 6 copies of the dense part and 20 of a batch's ids; in inference 1
  // and 1.
  const bool inference = problem.pipeline == Pipeline::kInference;
  double lookups = 0;
  for (const Table& table : problem.tables) lookups += table.lookups_per_sample;
  return (inference ? 1 : 6) * static_cast<double>(reservation.dense_bytes) +
         (inference ? 1 : 20) * std::ceil(lookups * problem.local_batch * 8);
}

std::int64_t UsableBytes(const Problem& problem, const Device& device, double reserved) {
  const double bytes =
      static_cast<double>(device.memory_bytes) * (1 - problem.reservation.fraction) - reserved;
  return static_cast<std::int64_t>(std::max(0.0, std::floor(bytes)));
}

std::uint32_t ColumnWidth(std::uint32_t dim, std::uint32_t min_partition) {
  const std::uint32_t least = min_partition == 0 ? 128 : min_partition;
  for (std::uint32_t width = (least + 3) / 4 * 4; width < dim; width += 4) {
    if (dim % width == 0) return width;
  }
  return dim;
}

}  // namespace embla::planner
