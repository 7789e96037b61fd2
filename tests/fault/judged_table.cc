#include "tests/fault/judged_table.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::fault {
namespace {

constexpr int kRowsPerRead = 4096;
constexpr int kAdagradDim = 16;
constexpr absl::Duration kReadTimeout = absl::Minutes(1);

struct Kind {
  const char* name;
  const char* sharding;
  const char* dtype;
  int digits;  // Digits of a cell: the mantissa has room for so many (base4_ledger.h).
};

const Kind& Of(TableKind kind) {
  static constexpr Kind kKinds[] = {
      {"plain", R"("row_wise")", "fp32", 12},
      {"zch", R"("row_wise")", "fp32", 12},
      {"whole", R"("table_wise")", "fp32", 12},
      {"columns", R"("column_wise", "min_partition": 4)", "fp32", 12},
      {"half", R"("row_wise")", "fp16", 5},
      {"brain", R"("grid_shard", "min_partition": 8)", "bf16", 4},
      {"adagrad", R"("row_wise")", "fp32", 12},
      {"groups", R"("row_wise")", "fp32", 12},
      {"copied", R"("data_parallel")", "fp32", 12},
  };
  return kKinds[static_cast<int>(kind)];
}

LedgerShape ShapeOf(TableKind kind, int trainers) {
  LedgerShape shape;
  shape.trainers = trainers;
  shape.digits = Of(kind).digits;
  if (kind == TableKind::kAdagrad) {
    shape.one_cell = true;
    shape.cells_per_trainer = 1;
    shape.digits /= trainers;
  }
  return shape;
}

}  // namespace

JudgedTable::JudgedTable(TableKind kind, int number, std::unique_ptr<Base4Ledger> ledger)
    : kind_(kind), name_(absl::StrCat(Of(kind).name, number)), ledger_(std::move(ledger)) {}

absl::StatusOr<std::unique_ptr<JudgedTable>> JudgedTable::Open(TableKind kind, int number,
                                                               int trainers,
                                                               const std::string& directory) {
  EMBLA_ASSIGN_OR_RETURN(
      std::unique_ptr<Base4Ledger> ledger,
      Base4Ledger::Open(ShapeOf(kind, trainers),
                        absl::StrCat(directory, "/", Of(kind).name, number, ".ledger")));
  return std::unique_ptr<JudgedTable>(new JudgedTable(kind, number, std::move(ledger)));
}

int JudgedTable::dim() const {
  return kind_ == TableKind::kAdagrad ? kAdagradDim : ledger_->shape().cells();
}

std::string JudgedTable::SpecJson(int groups) const {
  const int rows = ledger_->shape().rows();
  const bool is_zch = kind_ == TableKind::kZch;
  // A ZCH table has room for twice the ids: none is ever evicted.
  const std::string shape = is_zch
                                ? absl::StrCat(2 * rows, R"(, "zch": {"buckets": )", kUnitsPerTable,
                                               R"(, "policy": "lru", "unseen": "zero"})")
                                : absl::StrCat(rows, R"(, "row_granules": )", kUnitsPerTable);
  const bool is_adagrad = kind_ == TableKind::kAdagrad;
  return absl::StrCat(R"({"name": ")", name_, R"(", "dim": )", dim(), R"(, "rows": )", shape,
                      R"(, "dtype": ")", Of(kind_).dtype, R"(", "optimizer": {"kind": ")",
                      is_adagrad ? "rowwise_adagrad" : "sgd", R"(", "learning_rate": 1.0})",
                      R"(, "replica_groups": )", groups,
                      R"(, "init": {"kind": "constant", "a": 0.0}})");
}

absl::Status JudgedTable::Create(client::Admin& admin, int devices) const {
  const bool is_grouped = kind_ == TableKind::kGroups && devices % kReplicaGroups == 0;
  const std::string placement = absl::StrCat(R"({"sharding": )", Of(kind_).sharding, "}");
  return admin
      .Call<v1::TableReply>(
          client::CreateTableRequest(SpecJson(is_grouped ? kReplicaGroups : 1), placement))
      .status();
}

std::int64_t JudgedTable::IdOf(int row) const {
  if (kind_ != TableKind::kZch) return row;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(row + 1) * 0x9e3779b97f4a7c15u);
}

std::vector<std::int64_t> JudgedTable::IdsOf(int block) const {
  const int rows = ledger_->shape().rows_per_block;
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(rows));
  for (int i = 0; i < rows; ++i) {
    ids.push_back(IdOf(ledger_->RowOf(block, i)));
  }
  return ids;
}

JudgedTable::Update JudgedTable::UpdateOf(const Digit& digit) const {
  Update update{IdsOf(digit.block), {}};
  update.gradients.assign(update.ids.size() * dim(), 0.0f);
  // Minus a gradient times a learning rate of 1. Row-wise Adagrad adds the mean of the squares.
  const bool is_adagrad = kind_ == TableKind::kAdagrad;
  const float gradient =
      is_adagrad ? std::sqrt(digit.value() * static_cast<float>(dim())) : -digit.value();
  for (std::size_t i = 0; i < update.ids.size(); ++i) {
    update.gradients[i * dim() + digit.cell] = gradient;
  }
  return update;
}

absl::Status JudgedTable::ReadInto(client::Client& client, std::span<const std::int64_t> ids,
                                   std::span<float> cells_out) const {
  if (!shows_cells()) return client.ReadState(name_, ids, cells_out);
  const client::FeatureLookup lookup{.table = name_, .ids = ids, .rows_out = cells_out};
  return client.Lookup({&lookup, 1}, {.timeout = kReadTimeout});
}

absl::StatusOr<std::vector<float>> JudgedTable::ReadBlock(client::Client& client, int block) const {
  const std::vector<std::int64_t> ids = IdsOf(block);
  std::vector<float> cells(ids.size() * ledger_->shape().cells());
  EMBLA_RETURN_IF_ERROR(ReadInto(client, ids, cells));
  return cells;
}

absl::StatusOr<std::vector<float>> JudgedTable::ReadCells(
    std::span<const std::unique_ptr<client::Client>> by_group) const {
  EMBLA_ASSIGN_OR_RETURN(std::vector<float> cells, ReadCopy(*by_group[0]));
  if (kind_ != TableKind::kGroups) return cells;
  const LedgerShape& shape = ledger_->shape();
  for (std::uint32_t group = 1; group < by_group.size(); ++group) {
    EMBLA_ASSIGN_OR_RETURN(const std::vector<float> copy, ReadCopy(*by_group[group]));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const int cell = static_cast<int>(i % static_cast<std::size_t>(shape.cells()));
      if (GroupOf(cell / shape.cells_per_trainer) == group) cells[i] = copy[i];
    }
  }
  return cells;
}

absl::StatusOr<std::vector<float>> JudgedTable::ReadCopy(client::Client& client) const {
  const LedgerShape& shape = ledger_->shape();
  const auto cells_per_row = static_cast<std::size_t>(shape.cells());
  std::vector<float> cells(static_cast<std::size_t>(shape.rows()) * cells_per_row);
  for (int begin = 0; begin < shape.rows(); begin += kRowsPerRead) {
    std::vector<std::int64_t> ids;
    for (int row = begin; row < std::min(begin + kRowsPerRead, shape.rows()); ++row) {
      ids.push_back(IdOf(row));
    }
    const std::span<float> out =
        std::span(cells).subspan(begin * cells_per_row, ids.size() * cells_per_row);
    EMBLA_RETURN_IF_ERROR(ReadInto(client, ids, out));
  }
  return cells;
}

absl::StatusOr<JudgedTables> OpenTables(int number, int trainers, const std::string& directory) {
  JudgedTables tables;
  for (const TableKind kind : kTableKinds) {
    EMBLA_ASSIGN_OR_RETURN(tables.emplace_back(),
                           JudgedTable::Open(kind, number, trainers, directory));
  }
  return tables;
}

}  // namespace embla::fault
