#include "tools/train/model_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace embla::train {
namespace {

constexpr const char* kShardingDefault = "row_wise";
constexpr const char* kOptimizerDefault = "rowwise_adagrad";
constexpr std::int64_t kZchBuckets = 768;

// Required properties of one table.
struct Wanted {
  std::string name;
  std::int64_t rows = 0;
  std::uint32_t dim = 0;
  double init_deviation = 0.0;
};

bool IsAdagrad(const std::string& optimizer) {
  return optimizer == "rowwise_adagrad" || optimizer == "adagrad";
}

double LearningRate(const std::string& optimizer, const TableOptions& options) {
  if (options.learning_rate) return *options.learning_rate;
  if (IsAdagrad(optimizer)) return 0.1;
  return optimizer == "adam" ? 0.002 : 0.005;
}

std::string TableJson(const Wanted& wanted, const TableOptions& options) {
  const std::string kind = options.optimizer.value_or(kOptimizerDefault);
  nlohmann::json optimizer = {{"kind", kind}, {"learning_rate", LearningRate(kind, options)}};
  if (IsAdagrad(kind)) optimizer["initial_accumulator"] = options.initial_accumulator;
  if (options.weight_decay != 0.0) {
    optimizer["weight_decay"] = options.weight_decay;
    optimizer["weight_decay_mode"] = "l2";
  }
  nlohmann::json init = {{"kind", "constant"}, {"a", 0.0}};
  if (wanted.init_deviation > 0.0) {
    init = {{"kind", "normal"}, {"a", 0.0}, {"b", wanted.init_deviation}};
  }
  nlohmann::json table = {{"name", wanted.name},    {"rows", wanted.rows},  {"dim", wanted.dim},
                          {"dtype", options.dtype}, {"seed", options.seed}, {"init", init},
                          {"optimizer", optimizer}};
  if (options.zch_capacity) table["zch"] = {{"buckets", kZchBuckets}};
  if (options.replica_groups.value_or(1) != 1) {
    table["replica_groups"] = *options.replica_groups;
    table["sync_every_steps"] = options.sync_every_steps;
  }
  return table.dump();
}

// Rounds a capacity like the cluster: whole groups of 64 rows in every bucket.
std::int64_t ZchRows(std::int64_t capacity) {
  constexpr std::int64_t kUnit = kZchBuckets * 64;
  return (capacity + kUnit - 1) / kUnit * kUnit;
}

std::string PlacementJson(const TableOptions& options) {
  nlohmann::json placement = {{"sharding", options.sharding.value_or(kShardingDefault)}};
  if (!options.nodes.empty()) placement["nodes"] = options.nodes;
  return placement.dump();
}

template <typename Value>
void Compare(const char* what, const Value& has, const Value& wanted,
             std::vector<std::string>& differences) {
  if (has != wanted) differences.push_back(absl::StrCat(what, " ", has, " instead of ", wanted));
}

absl::Status CheckExisting(const client::TableInfo& has, const Wanted& wanted,
                           const TableOptions& options) {
  std::vector<std::string> differences;
  Compare("zch", has.zch, options.zch_capacity.has_value(), differences);
  Compare("rows", has.rows, wanted.rows, differences);
  Compare("dim", has.dim, wanted.dim, differences);
  Compare("dtype", has.dtype, options.dtype, differences);
  Compare("sharding", has.sharding, options.sharding.value_or(has.sharding), differences);
  Compare("optimizer", has.optimizer, options.optimizer.value_or(has.optimizer), differences);
  Compare("replica groups", has.replica_groups, options.replica_groups.value_or(has.replica_groups),
          differences);
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", has.name, " exists with ", absl::StrJoin(differences, ", "),
                   ": drop it, or choose other tables with --prefix"));
}

std::optional<client::TableInfo> Find(client::Client& client, const std::string& name) {
  for (client::TableInfo& table : client.Tables()) {
    if (table.name == name) return std::move(table);
  }
  return std::nullopt;
}

absl::Status Ensure(const Wanted& wanted, const TableOptions& options, client::Admin& admin,
                    client::Client& client, std::ostream& out) {
  const char* verb = "uses";
  std::optional<client::TableInfo> table = Find(client, wanted.name);
  if (!table) {
    const auto created = admin.Call<v1::TableReply>(
        client::CreateTableRequest(TableJson(wanted, options), PlacementJson(options)));
    // Another process may have been faster.
    if (!created.ok() && !absl::IsAlreadyExists(created.status())) return created.status();
    if (created.ok()) verb = "created";
    EMBLA_RETURN_IF_ERROR(client.RefreshPlan());
    table = Find(client, wanted.name);
  }
  if (!table) {
    return absl::UnavailableError(
        absl::StrCat("table ", wanted.name, " was created but is not in the plan"));
  }
  EMBLA_RETURN_IF_ERROR(CheckExisting(*table, wanted, options));
  out << verb << " table " << table->name << ": " << table->rows << " rows x " << table->dim << " "
      << table->dtype << ", " << table->sharding << ", " << table->optimizer << "\n";
  return absl::OkStatus();
}

// Column names may hold what table names may not.
std::string TableStem(const std::string& prefix, std::string column) {
  for (char& c : column) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return absl::StrCat(prefix, "_", column);
}

}  // namespace

ModelLayout LayoutOf(ModelKind kind, const std::string& prefix, std::span<const Column> columns,
                     std::uint32_t dim) {
  ModelLayout layout;
  layout.dim = dim;
  layout.columns = columns.size();
  if (kind == ModelKind::kFm) {
    layout.pairs.push_back({prefix + "_linear", prefix + "_factors", 0, columns.size(), 0});
    for (const Column& column : columns) {
      layout.base.push_back(layout.pairs.front().rows);
      layout.pairs.front().rows += column.rows;
    }
    return layout;
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::string stem = TableStem(prefix, columns[c].name);
    layout.pairs.push_back({stem + "_bias", stem + "_factors", c, 1, columns[c].rows});
    layout.base.push_back(0);
  }
  return layout;
}

absl::Status EnsureTables(const ModelLayout& layout, const TableOptions& options,
                          client::Admin& admin, client::Client& client, std::ostream& out) {
  EMBLA_RETURN_IF_ERROR(client.RefreshPlan());
  for (const TablePair& pair : layout.pairs) {
    const std::int64_t rows = options.zch_capacity ? ZchRows(*options.zch_capacity) : pair.rows;
    EMBLA_RETURN_IF_ERROR(Ensure({pair.linear, rows, 1, 0.0}, options, admin, client, out));
    EMBLA_RETURN_IF_ERROR(Ensure({pair.factors, rows, layout.dim, options.init_deviation}, options,
                                 admin, client, out));
  }
  return absl::OkStatus();
}

std::vector<std::string> TablesOf(const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const TablePair& pair : layout.pairs) {
    names.push_back(pair.linear);
    names.push_back(pair.factors);
  }
  return names;
}

absl::Status SyncTables(const ModelLayout& layout, client::Client& client) {
  return client.Sync(TablesOf(layout), {}).status();
}

}  // namespace embla::train
