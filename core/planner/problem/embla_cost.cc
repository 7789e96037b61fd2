#include "core/planner/problem/embla_cost.h"

#include <algorithm>
#include <cmath>

#include "core/planner/problem/units.h"

namespace embla::planner {
namespace {

constexpr double kIndexBytes = 8;
constexpr double kRowBytesMin = 64;          // A row costs at least one cache line.
constexpr double kShardOverheadMs = 0.004;   // Two batches queued, timed and answered.
constexpr double kReduceOverheadMs = 0.010;  // A collective inside the node.

double StateBytesPerRow(const Table& table, double columns) {
  const StateShape state = TraitsOf(table.optimizer).state;
  return 4 * (state.row_floats + state.element_arrays * columns);
}

// Share of lookups that the hottest `fraction` of rows gets.
double HitRate(const Table& table, double fraction) {
  double x0 = 0, y0 = 0;
  for (const auto& [x, y] : table.frequency) {
    if (x >= fraction) return y0 + (y - y0) * (x > x0 ? (fraction - x0) / (x - x0) : 1);
    x0 = x;
    y0 = y;
  }
  return y0 + (1 - y0) * (x0 < 1 ? (fraction - x0) / (1 - x0) : 1);
}

// Share of lookups that the busiest of `blocks` row blocks gets.
double BusiestBlock(const Table& table, double blocks) {
  double hottest_row = 1.0 / static_cast<double>(table.rows);
  if (!table.frequency.empty()) {
    const auto& [rows, lookups] = table.frequency.front();
    hottest_row = lookups / std::max(1.0, rows * static_cast<double>(table.rows));
  }
  return std::min(1.0, hottest_row + (1 - hottest_row) / blocks);
}

}  // namespace

// Per shard and step.
struct EmblaCost::Traffic {
  double lookups = 0;        // Rows read.
  double updates = 0;        // Rows stepped.
  double bags = 0;           // Results made.
  double network_bytes = 0;  // Ids, rows and gradients over the host's interface.
  double reduced_bytes = 0;  // Partial sums moved inside the node, one way.
};

EmblaCost::EmblaCost(const Problem& problem) : problem_(problem) {
  double devices = 0;
  for (const Host& host : problem.topology.hosts)
    devices += static_cast<double>(host.devices.size());
  devices_ = std::max(1.0, devices);
  const double hosts = static_cast<double>(problem.topology.hosts.size());
  devices_per_host_ = std::max(1.0, devices_ / std::max(1.0, hosts));
}

EmblaCost::Traffic EmblaCost::TrafficOf(const Table& table, const Cut& cut) const {
  const double samples = problem_.local_batch * devices_;
  const double lookups = table.lookups_per_sample * samples;
  const double bags = table.pooled ? table.bags_per_sample * samples : lookups;
  const double wire = table.wire_bytes == 0 ? table.element_bytes : table.wire_bytes;
  const double result_bytes = bags * cut.width * wire;
  Traffic traffic;
  if (TraitsOf(cut.type).has_copies) {
    // Trainers read the copy on their own node; every copy takes every update, once per node.
    traffic.lookups = lookups / devices_;
    traffic.updates = lookups;
    traffic.bags = bags / devices_;
    traffic.network_bytes = (lookups * kIndexBytes + result_bytes) / devices_per_host_;
    return traffic;
  }
  const double share = cut.row_blocks > 1 ? BusiestBlock(table, cut.row_blocks) : 1.0;
  // Devices of one node answer together: their partial sums are one reply.
  const double sharers = std::min<double>(cut.row_blocks, devices_per_host_);
  traffic.lookups = traffic.updates = lookups * share;
  traffic.bags = table.pooled ? bags : lookups * share;
  const double replies = table.pooled ? result_bytes / sharers : result_bytes * share;
  traffic.network_bytes = lookups * share * kIndexBytes + 2 * replies;
  if (sharers > 1 && table.pooled) traffic.reduced_bytes = bags * cut.width * 4.0;
  return traffic;
}

double EmblaCost::RowBandwidth(const Table& table, Kernel kernel) const {
  const Bandwidths& bandwidth = problem_.topology.bandwidth;
  const double device = BytesPerMs(bandwidth.device_memory);
  const double host =
      BytesPerMs(std::min(bandwidth.host_to_device, bandwidth.host_memory / devices_per_host_));
  const double ssd = BytesPerMs(bandwidth.ssd / devices_per_host_);
  const double hits = HitRate(table, problem_.cache_fraction);
  switch (kernel) {
    case Kernel::kDevice:
      return device;
    case Kernel::kHost:
      return host;
    case Kernel::kHostCached:
      return 1 / (hits / device + (1 - hits) / host);
    case Kernel::kSsd:
      break;
  }
  return 1 / (hits / device + (1 - hits) / ssd);
}

void EmblaCost::AddBytes(const Table& table, const Cut& cut, const Traffic& traffic,
                         Price* price) const {
  const bool replicated = TraitsOf(cut.type).has_copies;
  const std::int64_t blocks = replicated ? 1 : cut.row_blocks;
  const std::int64_t rows = (table.rows + blocks - 1) / blocks;
  const std::int64_t all_rows = table.rows * cut.column_blocks * (replicated ? cut.row_blocks : 1);
  const double row_bytes = static_cast<double>(cut.width) * table.element_bytes +
                           StateBytesPerRow(table, cut.width) + table.slot_bytes;
  const auto bytes_of = [&](std::int64_t n) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(n) * row_bytes));
  };
  const std::size_t home = cut.kernel == Kernel::kDevice ? 0 : cut.kernel == Kernel::kSsd ? 2 : 1;
  price->bytes[home] = bytes_of(rows);
  price->bytes_total[home] = std::min(bytes_of(all_rows), price->bytes[home] * cut.shards());
  if (cut.kernel == Kernel::kHostCached || cut.kernel == Kernel::kSsd) {
    const double fraction = problem_.cache_fraction;
    price->bytes[0] = static_cast<std::int64_t>(
        std::ceil(fraction * static_cast<double>(price->bytes[home])) + 4.0 * rows);
    price->bytes_total[0] =
        std::min(static_cast<std::int64_t>(
                     fraction * static_cast<double>(price->bytes_total[home]) + 4.0 * all_rows),
                 price->bytes[0] * cut.shards());
  }
  const std::int64_t buffers = static_cast<std::int64_t>(std::ceil(traffic.network_bytes));
  price->bytes[1] += buffers;
  price->bytes_total[1] += buffers * cut.shards();
}

Price EmblaCost::PriceOf(const Table& table, const Cut& cut) const {
  const Traffic traffic = TrafficOf(table, cut);
  const double row_bytes =
      std::max(kRowBytesMin, static_cast<double>(cut.width) * table.element_bytes);
  const double state_bytes = StateBytesPerRow(table, cut.width);
  const double device = BytesPerMs(problem_.topology.bandwidth.device_memory);
  const double rows = RowBandwidth(table, cut.kernel);
  const double intra = BytesPerMs(problem_.topology.bandwidth.intra_host);
  const double reduce =
      traffic.reduced_bytes > 0 ? traffic.reduced_bytes / intra + kReduceOverheadMs : 0;
  const double result_bytes = traffic.bags * cut.width * 4;

  Price price;
  price.parts_ms[0] = traffic.lookups * row_bytes / rows + result_bytes / device + kShardOverheadMs;
  price.parts_ms[1] = reduce;
  price.parts_ms[2] =
      traffic.updates * 2 * (row_bytes + state_bytes) / rows + result_bytes / device;
  const bool replicated = TraitsOf(cut.type).has_copies;
  const std::int64_t blocks = replicated ? 1 : cut.row_blocks;
  const std::int64_t block_rows = (table.rows + blocks - 1) / blocks;
  const auto held = static_cast<double>(block_rows);
  const double held_bytes = held * (static_cast<double>(cut.width) * table.element_bytes);
  price.parts_ms[3] = reduce + SyncMs(problem_, held_bytes + held * state_bytes);
  double total = 0;
  for (double& part : price.parts_ms) {
    part *= table.measured_factor;
    total += part;
  }
  price.work = TicksFromMs(total);
  price.host_work = TicksFromMs(traffic.network_bytes * table.measured_factor /
                                BytesPerMs(problem_.topology.bandwidth.inter_host));
  AddBytes(table, cut, traffic, &price);
  return price;
}

}  // namespace embla::planner
