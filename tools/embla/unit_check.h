// Whether plan, records and nodes agree about the units of a table. Pure: what was read goes in,
// what is wrong comes out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/include/embla/inspector.h"
#include "core/plan/plan.h"

namespace embla::cli {

struct UnitFinding {
  enum class Kind : std::uint8_t {
    kOwners,    // Served by several nodes, by nobody, or by another one than the plan says.
    kLeftover,  // Rows kept or staged though no job runs.
    kRecord,    // The coordinator's record says another thing than its plan.
    kContent,   // Rows are missing, or copies differ.
  };
  Kind kind = Kind::kOwners;
  std::uint32_t row_granule = 0;
  std::uint32_t column_begin = 0;
  std::string what;    // "unit 7 (rows 70-79, columns 0-15) is served by node a and by node b"
  std::string remedy;  // Advice to the operator.
};

struct TableEvidence {
  std::vector<client::UnitOwner> owners;
  std::map<NodeId, std::vector<client::UnitOnNode>> units;  // The units of every node in the plan.
  bool job_runs = false;                                    // True: units may be on the move.
  bool groups_synced = false;  // Replica groups were averaged: their copies are equal.
};

struct TableVerdict {
  std::size_t units = 0;     // Units in the plan, all copies.
  std::int64_t rows = 0;     // Rows that are served, all copies.
  std::uint64_t digest = 0;  // Sum of the units' checksums, of one copy.
  int several_owners = 0;    // Units that more than one node serves, or none.
  std::vector<UnitFinding> findings;
};

TableVerdict CheckUnits(const Plan& plan, const TablePlan& table, const TableEvidence& evidence);

}  // namespace embla::cli
