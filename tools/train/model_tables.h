// The Embla tables of a model: which exist, how columns map to their rows, how they are created.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "tools/train/examples.h"

namespace embla::train {

//   kFm   one pair of tables for all columns: <prefix>_linear, <prefix>_factors
//   kMf   one pair per column: <prefix>_user_bias, <prefix>_user_factors, <prefix>_item_bias, ...
enum class ModelKind { kFm, kMf };

// Linear weights (dim 1) and factors of adjacent columns. Column c's row r is row base[c] + r; raw
// ids are as they are.
struct TablePair {
  std::string linear;
  std::string factors;
  std::size_t first_column = 0;
  std::size_t columns = 0;
  std::int64_t rows = 0;
};

struct ModelLayout {
  std::uint32_t dim = 0;
  std::size_t columns = 0;
  std::vector<TablePair> pairs;
  std::vector<std::int64_t> base;  // One per column.
};

std::vector<std::string> TablesOf(const ModelLayout& layout);

ModelLayout LayoutOf(ModelKind kind, const std::string& prefix, std::span<const Column> columns,
                     std::uint32_t dim);

// How tables are created. Absent options take the default; given ones must also be true of a table
// that exists already.
struct TableOptions {
  std::optional<std::string> sharding;   // row_wise
  std::optional<std::string> optimizer;  // rowwise_adagrad
  std::string dtype = "fp32";
  std::optional<double> learning_rate;  // 0.1; adam 0.002; sgd 0.005
  // Initial value of Adagrad's sum of squared gradients. From 0 the first step of a row is a full
  // learning rate however little is known, which overshoots for an example with many columns.
  double initial_accumulator = 30.0;
  double weight_decay = 0.0;  // L2, per touched row and step.
  // Deviation of the factors' initial values; linear weights start from 0.
  double init_deviation = 1e-4;
  std::uint64_t seed = 1;
  std::vector<std::string> nodes;  // Empty: all.
  // Copies of each table, trained by as many groups of trainers (2D parallelism), and after how
  // many updates of each group they are averaged; 0: at the end of every epoch only.
  std::optional<std::uint32_t> replica_groups;  // 1
  std::uint32_t sync_every_steps = 0;
  // Tables of raw ids: how many ids can have a row in each (docs/zch.md).
  std::optional<std::int64_t> zch_capacity;
};

// Creates the tables of `layout` that do not exist and says on `out` what it did. Several processes
// may call this at once. FailedPrecondition: a table exists and differs; the message says how.
absl::Status EnsureTables(const ModelLayout& layout, const TableOptions& options,
                          client::Admin& admin, client::Client& client, std::ostream& out);

// Averages the replica groups of the tables of `layout`; those without groups stay as they are.
absl::Status SyncTables(const ModelLayout& layout, client::Client& client);

}  // namespace embla::train
