// A table as the user asks for it: from flags, or from a YAML or JSON file.
//
//   name: clicks                       # Every field of a table spec, docs/plan_format.md;
//   rows: 1000000                      # what is left out keeps its default.
//   dim: 64
//   optimizer: {kind: adagrad, learning_rate: 0.05}
//   zch: {buckets: 768, policy: lru}   # Only of ZCH tables; rows is their capacity.
//   placement: {sharding: row_wise, nodes: [n0, n1], devices: [0, 1], min_partition: 32}
//
// A file may also hold a list of such tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/table_spec.h"
#include "core/planner/placement.h"
#include "tools/embla/zch_flags.h"

namespace embla::cli {

struct TableRequest {
  TableSpec spec;
  PlacementRequest placement;
};

// Values from the command line. Words are those of core/plan/names.h; empty keeps the default.
struct TableFlags {
  std::string file;  // File with the table; other flags do not count then.

  std::string name;
  std::int64_t rows = 0;
  std::uint32_t dim = 0;
  std::string dtype;
  std::string rounding;
  std::string bounds;
  std::string nan_policy;
  std::string durability;
  std::vector<std::string> callers;
  std::uint64_t seed = 0;
  ZchFlags zch;
  std::uint32_t row_granules = 0;
  std::uint32_t column_granule_width = 0;

  std::string optimizer;
  std::string weight_decay_mode;
  std::string bias_correction;
  OptimizerSpec numbers;  // Only its numbers count.

  std::string init;
  float init_a = 0.0f;
  float init_b = 0.0f;

  std::string sharding;
  std::vector<std::string> nodes;
  std::vector<std::uint32_t> devices;
  std::uint32_t min_partition = 0;
  std::uint32_t replica_groups = 1;
  float lookups_per_sample = 1.0f;
  std::uint32_t sync_every_steps = 0;

  bool sync = false;  // Synchronous steps; without it none of these may be given.
  std::optional<std::uint32_t> step_timeout_ms = {};
  std::string on_silence = {};
  std::optional<std::uint32_t> steps_ahead = {};
};

// The one table of the flags, or the tables of flags.file.
// Errors: InvalidArgument names the field, or the file and line.
absl::StatusOr<std::vector<TableRequest>> RequestsFromFlags(const TableFlags& flags);

// The tables of a YAML or JSON text.
absl::StatusOr<std::vector<TableRequest>> RequestsFromText(const std::string& text);

}  // namespace embla::cli
