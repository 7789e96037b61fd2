#include "core/planner/problem/torchrec_cost.h"

#include <algorithm>
#include <cmath>

#include "core/planner/problem/units.h"

namespace embla::planner {
namespace {

constexpr double kTorchrecIndexBytes = 8;
constexpr double kBackwardComputeFactor = 2;
constexpr double kWeightedKernelFactor = 1.1;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kDpElementwiseFactor = 9.22;
constexpr double kLookupColumnsMin = 32;

// Narrow blocks waste lanes; TorchRec charges it to table- and column-wise shards only.
double BlockPenalty(double columns) { return columns < 64 ? 1.75 : columns < 128 ? 1.15 : 1.0; }

// Bytes of state per byte of weights, in fp32. TorchRec counts no steps per row.
double StateFactor(const Table& table) {
  const StateShape state = TraitsOf(table.optimizer).state;
  return state.element_arrays +
         static_cast<double>(state.row_floats - state.row_counters) / table.dim;
}

bool IsCached(Kernel kernel) { return kernel == Kernel::kHostCached || kernel == Kernel::kSsd; }

// Share of lookups that miss a cache of the hottest `fraction` of rows.
double MissRate(const Table& table, double fraction) {
  double x0 = 0, y0 = 0;
  for (const auto& [x, y] : table.frequency) {
    if (x >= fraction) return 1 - (y0 + (y - y0) * (x > x0 ? (fraction - x0) / (x - x0) : 1));
    x0 = x;
    y0 = y;
  }
  return 1 - (y0 + (1 - y0) * (x0 < 1 ? (fraction - x0) / (1 - x0) : 1));
}

}  // namespace

struct TorchRecCost::Volume {
  double input = 0;   // Bytes of ids.
  double lookup = 0;  // Bytes of rows.
  double output = 0;  // Bytes of results, in table elements.
  double comms = 0;   // Bytes of results, in wire elements.
};

TorchRecCost::TorchRecCost(const Problem& problem) : problem_(problem) {
  std::size_t devices = 0;
  std::size_t least = SIZE_MAX;
  for (const Host& host : problem.topology.hosts) {
    devices += host.devices.size();
    least = std::min(least, host.devices.size());
  }
  world_ = static_cast<double>(std::max<std::size_t>(devices, 1));
  local_ = static_cast<double>(std::max<std::size_t>(devices == 0 ? 1 : least, 1));
}

TorchRecCost::Volume TorchRecCost::VolumeOf(const Table& table, const Cut& cut) const {
  // Lookups of one trainer.
  const double lookups = table.lookups_per_sample * problem_.local_batch;
  const double bags = table.pooled ? table.bags_per_sample * problem_.local_batch : lookups;
  const double index_bytes = kTorchrecIndexBytes * (table.weighted ? 2 : 1);
  const double element = table.element_bytes;
  const double wire = table.wire_bytes == 0 ? element : table.wire_bytes;
  const double width = cut.width;
  const bool replicated = TraitsOf(cut.type).has_copies;
  const double trainers = replicated ? 1 : world_;  // Trainers that send their ids to this shard.
  double rows_looked_up = lookups * trainers;
  double columns = width;
  if (cut.type == ShardingType::kRowWise || TraitsOf(cut.type).shares_hosts) {
    rows_looked_up = lookups / cut.row_blocks * trainers;
  } else if (!replicated) {
    columns = std::max(width, kLookupColumnsMin);
  }
  Volume volume;
  volume.input = std::ceil(rows_looked_up * index_bytes);
  volume.lookup = rows_looked_up * columns * element;
  volume.output = bags * trainers * width * element;
  volume.comms = bags * trainers * width * wire;
  return volume;
}

double TorchRecCost::KernelBandwidth(const Cut& cut) const {
  const Bandwidths& bandwidth = problem_.topology.bandwidth;
  const double device = BytesPerMs(bandwidth.device_memory);
  const double bus = BytesPerMs(bandwidth.host_to_device);
  if (TraitsOf(cut.type).has_copies) return 0.5 * device;
  switch (cut.kernel) {
    case Kernel::kDevice:
      return device;
    case Kernel::kHost:
      return bus / 10;
    case Kernel::kSsd:
      return bus;
    case Kernel::kHostCached:
      break;
  }
  if (problem_.pipeline == Pipeline::kPrefetch) return device;
  return (problem_.cache_fraction * device + (1 - problem_.cache_fraction) * bus) / 10;
}

void TorchRecCost::AddTimes(const Table& table, const Cut& cut, Price* price) const {
  const Volume volume = VolumeOf(table, cut);
  const Bandwidths& bandwidth = problem_.topology.bandwidth;
  const double kernel = KernelBandwidth(cut);
  const double intra = BytesPerMs(bandwidth.intra_host);
  const double inter = BytesPerMs(bandwidth.inter_host);
  const bool row_split = cut.type == ShardingType::kRowWise || TraitsOf(cut.type).shares_hosts;
  const bool replicated = TraitsOf(cut.type).has_copies;
  const double penalty = row_split || replicated ? 1 : BlockPenalty(cut.width);

  const double forward = (volume.input + volume.lookup + volume.output) * penalty / kernel;
  double backward = kBackwardComputeFactor * forward;
  if (table.weighted) backward += kWeightedKernelFactor * forward;

  double forward_comms = 0;
  double backward_comms = 0;
  if (replicated) {
    const double bytes = static_cast<double>(table.rows) * table.dim * table.element_bytes;
    const double hosts = std::min(world_ / local_, 2.0);
    backward_comms = bytes * (2 * hosts - 1) / hosts / (inter * local_);
    if (world_ > 2 * local_) backward_comms *= 2;
    backward_comms += bytes * kDpElementwiseFactor / kernel;
  } else if (TraitsOf(cut.type).shares_hosts) {
    forward_comms = volume.comms / intra;
    if (world_ > cut.row_blocks) forward_comms += volume.comms / cut.row_blocks / inter;
    backward_comms = forward_comms;
  } else {
    forward_comms = volume.comms / (world_ <= local_ ? intra : inter);
    backward_comms = forward_comms;
  }
  if (row_split) backward_comms += volume.output * kBatchedCopyFactor / kernel;

  double prefetch = 0;
  if (IsCached(cut.kernel) && !table.frequency.empty()) {
    prefetch = MissRate(table, problem_.cache_fraction) * table.lookups_per_sample *
               problem_.local_batch * world_ / cut.row_blocks * cut.width * table.element_bytes /
               BytesPerMs(bandwidth.host_to_device);
  }
  price->parts_ms = {forward, forward_comms, backward, backward_comms, prefetch};
  if (problem_.pipeline == Pipeline::kInference) price->parts_ms = {forward, forward_comms};
}

double TorchRecCost::BufferBytes(const Table& table, const Cut& cut) const {
  const Volume volume = VolumeOf(table, cut);
  switch (problem_.pipeline) {
    case Pipeline::kNone:
      return volume.input + volume.output;
    case Pipeline::kSparseDist:
      return 2 * volume.input;
    case Pipeline::kPrefetch:
      return (IsCached(cut.kernel) ? 10 : 3) * volume.input;
    case Pipeline::kInference:
      break;
  }
  return 0;
}

void TorchRecCost::AddBytes(const Table& table, const Cut& cut, Price* price) const {
  const bool replicated = TraitsOf(cut.type).has_copies;
  const std::int64_t row_blocks = replicated ? 1 : cut.row_blocks;
  const std::int64_t block_rows = (table.rows + row_blocks - 1) / row_blocks;
  const std::int64_t filled = (table.rows + block_rows - 1) / block_rows * cut.column_blocks *
                              (replicated ? cut.row_blocks : 1);
  const double rows = static_cast<double>(block_rows);
  const double weights = rows * cut.width * table.element_bytes;
  const double buffers = std::ceil(BufferBytes(table, cut));
  const double copies = replicated ? cut.row_blocks : 1;
  const double table_bytes =
      static_cast<double>(table.rows) * table.dim * table.element_bytes * copies;
  const double state = 1 + StateFactor(table);
  const double fraction = problem_.cache_fraction;

  double device = 0;
  double device_total = 0;
  if (cut.kernel == Kernel::kDevice) {
    device = std::ceil(weights * state);
    device_total = std::ceil(table_bytes * state);
  } else if (IsCached(cut.kernel)) {
    const double tags = 4 + 16 * fraction;
    device = std::ceil(std::round(fraction * weights) * state) + std::ceil(rows * tags);
    device_total = std::ceil(fraction * table_bytes * state) +
                   std::ceil(static_cast<double>(table.rows) * cut.column_blocks * tags);
  }
  price->bytes[0] = static_cast<std::int64_t>(device + buffers);
  // Rounding each shard up may add a byte per shard: the total stays below shards x largest.
  price->bytes_total[0] = std::min(static_cast<std::int64_t>(device_total + buffers * filled),
                                   price->bytes[0] * cut.shards());
  const std::size_t home = cut.kernel == Kernel::kSsd ? 2 : 1;
  if (cut.kernel != Kernel::kDevice) {
    price->bytes[home] = static_cast<std::int64_t>(std::ceil(weights * state));
    price->bytes_total[home] = std::min(static_cast<std::int64_t>(std::ceil(table_bytes * state)),
                                        price->bytes[home] * cut.shards());
  }
}

Price TorchRecCost::PriceOf(const Table& table, const Cut& cut) const {
  Price price;
  AddTimes(table, cut, &price);
  AddBytes(table, cut, &price);
  const bool replicated = TraitsOf(cut.type).has_copies;
  const std::int64_t blocks = replicated ? 1 : cut.row_blocks;
  const std::int64_t block_rows = (table.rows + blocks - 1) / blocks;
  const double sync = SyncMs(problem_, static_cast<double>(block_rows) * cut.width *
                                           table.element_bytes * (1 + StateFactor(table)));
  price.parts_ms[static_cast<std::size_t>(CostPart::kBackwardComms)] += sync;
  double total = 0;
  for (double& part : price.parts_ms) {
    part *= table.measured_factor;
    total += part;
  }
  price.work = TicksFromMs(total);
  return price;
}

}  // namespace embla::planner
