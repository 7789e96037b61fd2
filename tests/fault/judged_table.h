// The tables of a chaos run, and what each must hold.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "tests/fault/base4_ledger.h"

namespace embla::fault {

// One of each is in every run.
enum class TableKind : std::uint8_t {
  kPlain,    // row_wise
  kZch,      // row_wise, of any ids
  kWhole,    // table_wise
  kColumns,  // column_wise: one row lies on several devices
  kHalf,     // row_wise, fp16
  kBrain,    // grid_shard, bf16
  kAdagrad,  // row_wise with row-wise Adagrad: judged by its sums of squares
  kGroups,   // row_wise in replica groups that are never averaged, if devices can be divided
  kCopied,   // data_parallel: copies come, go and change their primary
};
inline constexpr TableKind kTableKinds[] = {
    TableKind::kPlain,   TableKind::kZch,    TableKind::kWhole,
    TableKind::kColumns, TableKind::kHalf,   TableKind::kBrain,
    TableKind::kAdagrad, TableKind::kGroups, TableKind::kCopied};

// Trainers update and read the copy of one group for life.
inline constexpr int kReplicaGroups = 2;
inline std::uint32_t GroupOf(int trainer) {
  return static_cast<std::uint32_t>(trainer % kReplicaGroups);
}

// Row granules, or buckets of the ZCH table.
inline constexpr int kUnitsPerTable = 48;

class JudgedTable {
 public:
  // The ledger lies in `directory`, for all processes of the run. `trainers` update the table.
  static absl::StatusOr<std::unique_ptr<JudgedTable>> Open(TableKind kind, int number, int trainers,
                                                           const std::string& directory);

  const std::string& name() const { return name_; }
  Base4Ledger& ledger() const { return *ledger_; }
  // Whether lookups show the ledger's cells.
  bool shows_cells() const { return kind_ != TableKind::kAdagrad; }
  // Whether every lookup shows what became of an update whose session is closed. A copy may still
  // get one that its primary has, and that nobody acknowledged.
  bool settles() const { return kind_ != TableKind::kCopied; }

  // On nodes of so many devices.
  absl::Status Create(client::Admin& admin, int devices) const;

  // Ids and gradients that add `digit` to its block.
  struct Update {
    std::vector<std::int64_t> ids;
    std::vector<float> gradients;
  };
  Update UpdateOf(const Digit& digit) const;
  // Ids of the rows of a block, in order.
  std::vector<std::int64_t> IdsOf(int block) const;
  // The ledger's cells of the rows of a block, of the client's replica group.
  absl::StatusOr<std::vector<float>> ReadBlock(client::Client& client, int block) const;
  // Reads the whole table: each trainer's cells of its group, read by the group's client.
  absl::StatusOr<std::vector<float>> ReadCells(
      std::span<const std::unique_ptr<client::Client>> by_group) const;

 private:
  JudgedTable(TableKind kind, int number, std::unique_ptr<Base4Ledger> ledger);

  int dim() const;
  std::string SpecJson(int groups) const;
  absl::StatusOr<std::vector<float>> ReadCopy(client::Client& client) const;
  absl::Status ReadInto(client::Client& client, std::span<const std::int64_t> ids,
                        std::span<float> cells_out) const;
  // The id that stands for position `row` of the ledger.
  std::int64_t IdOf(int row) const;

  const TableKind kind_;
  const std::string name_;
  const std::unique_ptr<Base4Ledger> ledger_;
};

using JudgedTables = std::vector<std::unique_ptr<JudgedTable>>;

// One of each kind, whose names end with `number`.
absl::StatusOr<JudgedTables> OpenTables(int number, int trainers, const std::string& directory);

}  // namespace embla::fault
