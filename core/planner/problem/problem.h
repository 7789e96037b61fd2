// The planner's input: tables, machines, rules. Plain values; Validate() before use.
//
// Sizes are bytes, bandwidths GiB/s, times are given to nobody: a CostModel (cost_model.h) turns
// a table and a cut into time and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/table_spec.h"
#include "core/planner/problem/units.h"

namespace embla::planner {

// Memory that holds a shard's rows, and whether device memory caches them.
enum class Kernel : std::uint8_t {
  kDevice = 0,      // TorchRec: fused (dense for data_parallel).
  kHostCached = 1,  // fused_uvm_caching: rows in host memory, a cache of them on the device.
  kHost = 2,        // fused_uvm: rows in host memory, read over the bus.
  kSsd = 3,         // key_value: rows on the host's SSD, a cache of them on the device.
};
inline constexpr int kKernels = 4;

inline constexpr double kSlowdownMin = 0.01;
inline constexpr double kSlowdownMax = 1000;

struct Device {
  std::int64_t memory_bytes = 0;
  double slowdown = 1.0;   // Measured time / predicted time on the reference device.
  std::string group = {};  // Label that constraints may name; may be empty.
};

struct Host {
  std::string name;
  std::vector<Device> devices;
  std::int64_t memory_bytes = 0;  // Shared by its devices.
  std::int64_t ssd_bytes = 0;     // Shared by its devices.
};

// TorchRec's defaults (research constants of commit a48cef79).
struct Bandwidths {
  double device_memory = 897;
  double host_memory = 51;
  double host_to_device = 32;
  double intra_host = 600;
  double inter_host = 12.5;
  double ssd = 0.1;
};

struct Topology {
  std::vector<Host> hosts;
  Bandwidths bandwidth;
};

// Shards of one table that may not meet.
enum class Spread : std::uint8_t { kAny = 0, kDevices = 1, kHosts = 2 };

// Empty lists mean "any". A device is named "<host>:<index>".
struct TableRules {
  std::vector<ShardingType> types;  // Any: all but grid_shard, which must be named.
  std::vector<Kernel> kernels;      // Any: all but ssd, which must be named.
  std::vector<std::string> hosts;
  std::vector<std::string> devices;
  std::vector<std::string> groups;
  std::string pin;                  // One device that holds the whole table.
  std::uint32_t min_partition = 0;  // Narrowest column block; 0: the problem's.
  Spread spread = Spread::kAny;
};

struct Table {
  std::string name;
  std::int64_t rows = 0;
  std::uint32_t dim = 0;
  std::uint32_t element_bytes = 4;
  std::uint32_t wire_bytes = 0;  // Bytes of an element on the wire; 0: element_bytes.
  // Bytes per row beside weights and optimizer state: a ZCH table's record of the row's id.
  std::uint32_t slot_bytes = 0;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  double lookups_per_sample = 1;  // Sum over features of mean bag length x bags.
  double bags_per_sample = 1;     // Sum over features of bags.
  bool weighted = false;
  bool pooled = true;
  double measured_factor = 1;  // Measured / predicted time of this table.
  // Points (fraction of rows, fraction of lookups), hottest rows first, both ascending; used for
  // caches and for row skew. Empty: uniform.
  std::vector<std::pair<double, double>> frequency;
  TableRules rules;
};

// Memory kept free on every device.
struct Reservation {
  enum class Kind : std::uint8_t { kFixed = 0, kHeuristical = 1 };
  Kind kind = Kind::kFixed;
  double fraction = 0.15;
  std::int64_t dense_bytes = 0;  // kHeuristical: parameters outside the tables.
};

// Buffers of the training pipeline that share memory with the tables.
enum class Pipeline : std::uint8_t { kNone = 0, kSparseDist = 1, kPrefetch = 2, kInference = 3 };

enum class CostKind : std::uint8_t { kTorchRec = 0, kEmbla = 1 };

struct Problem {
  Topology topology;
  std::vector<Table> tables;
  CostKind cost = CostKind::kTorchRec;
  double local_batch = 512;  // Samples per device and step.
  Reservation reservation;
  Pipeline pipeline = Pipeline::kNone;
  double cache_fraction = 0.2;
  // Column blocks: 0 asks for TorchRec's rule (the smallest divisor of dim that is a multiple of 4
  // and at least 128). all_widths adds every dim / 2^k down to it.
  std::uint32_t min_partition = 0;
  bool all_widths = false;
  // Replica groups of 2D parallelism: 1 none, 0 the best of the divisors of every host's devices.
  std::uint32_t replicas = 1;
  double sync_period_steps = 1;
};

// InvalidArgument names the table or host and the rule that does not hold, contradictory rules
// included. O(tables + devices).
absl::Status Validate(const Problem& problem);

}  // namespace embla::planner
