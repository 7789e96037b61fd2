#include "server/coordinator/unit_records.h"

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"
#include "server/coordinator/copy_change.h"

namespace embla {
namespace {

constexpr std::pair<MovePhase, std::string_view> kPhases[] = {
    {MovePhase::kNone, "none"}, {MovePhase::kOpen, "open"}, {MovePhase::kAborted, "aborted"}};

absl::StatusOr<MovePhase> PhaseFromName(std::string_view name) {
  for (const auto& [phase, text] : kPhases) {
    if (text == name) return phase;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", ToAbsl(name), "\" is no phase of a move"));
}

absl::Status NoSuchUnit(const UnitId& unit) {
  return absl::NotFoundError(absl::StrCat("the plan has no unit ", KeyOf(unit)));
}

}  // namespace

std::string_view NameOf(MovePhase phase) {
  for (const auto& [known, text] : kPhases) {
    if (known == phase) return text;
  }
  return "unknown";
}

std::string UnitPrefix(TableId table) { return absl::StrFormat("units/%010d/", ToInt(table)); }

std::string KeyOf(const UnitId& unit) {
  return absl::StrCat(UnitPrefix(unit.table),
                      absl::StrFormat("%010d/%010d", unit.row_granule, unit.column_granule));
}

std::string UnitRecordToJson(const UnitRecord& record) {
  return DumpJson({{"owner", ToInt(record.owner)},
                   {"epoch", ToInt(record.epoch)},
                   {"committed", ToInt(record.committed)},
                   {"move", ToInt(record.move)},
                   {"phase", NameOf(record.phase)},
                   {"source", ToInt(record.source)},
                   {"target", ToInt(record.target)}});
}

absl::StatusOr<UnitRecord> UnitRecordFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "unit");
  const auto node = [&fields](std::string_view name, std::uint64_t low) {
    return NodeId{static_cast<std::uint32_t>(fields.Unsigned(name, low, UINT32_MAX))};
  };
  UnitRecord record;
  record.owner = node("owner", 1);
  record.epoch = UnitEpoch{fields.Unsigned("epoch", 1, UINT64_MAX)};
  record.committed = MoveId{fields.Unsigned("committed", 0, UINT64_MAX)};
  record.move = MoveId{fields.Unsigned("move", 0, UINT64_MAX)};
  EMBLA_ASSIGN_OR_RETURN(record.phase, PhaseFromName(fields.Text("phase")));
  record.source = node("source", 0);
  record.target = node("target", 0);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return record;
}

absl::StatusOr<DeviceId> OwnerInPlan(const Plan& plan, const UnitId& unit) {
  const TablePlan* const table = plan.FindTable(unit.table);
  if (table == nullptr || HasCopies(*table) || unit.row_granule >= table->spec.row_granules ||
      unit.column_granule >= table->spec.column_granules()) {
    return NoSuchUnit(unit);
  }
  const std::int64_t row = table->spec.RowGranuleBegin(unit.row_granule);
  const std::uint32_t column = table->spec.ColumnGranuleBegin(unit.column_granule);
  for (const Slice& slice : table->primary()) {
    if (slice.column_begin == column && slice.row_begin <= row && row < slice.row_end) {
      return slice.device;
    }
  }
  return NoSuchUnit(unit);  // The column granule is not the first of a cut.
}

namespace {

absl::StatusOr<UnitRecord> Decode(const StateEntry& entry) {
  absl::StatusOr<UnitRecord> record = UnitRecordFromJson(entry.value);
  if (record.ok()) return record;
  return absl::DataLossError(
      absl::StrCat("state key ", entry.key, " is not readable: ", record.status().message()));
}

}  // namespace

absl::StatusOr<StoredUnit> ReadUnit(const StateStore& store, const Plan& plan, const UnitId& unit) {
  EMBLA_ASSIGN_OR_RETURN(const DeviceId device, OwnerInPlan(plan, unit));
  const absl::StatusOr<StateEntry> entry = store.Get(KeyOf(unit));
  if (absl::IsNotFound(entry.status())) {
    StoredUnit fresh;
    fresh.record.owner = device.node;
    return fresh;
  }
  if (!entry.ok()) return entry.status();
  EMBLA_ASSIGN_OR_RETURN(const UnitRecord record, Decode(*entry));
  return StoredUnit{record, entry->revision};
}

absl::StatusOr<std::vector<std::pair<UnitId, UnitRecord>>> ListUnits(const StateStore& store,
                                                                     TableId table) {
  const std::string prefix = UnitPrefix(table);
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(prefix));
  std::vector<std::pair<UnitId, UnitRecord>> units;
  for (const StateEntry& entry : entries) {
    const std::vector<std::string> numbers = absl::StrSplit(entry.key.substr(prefix.size()), '/');
    UnitId unit{.table = table};
    if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &unit.row_granule) ||
        !absl::SimpleAtoi(numbers[1], &unit.column_granule)) {
      return absl::DataLossError(absl::StrCat("state key ", entry.key, " names no unit"));
    }
    EMBLA_ASSIGN_OR_RETURN(const UnitRecord record, Decode(entry));
    units.emplace_back(unit, record);
  }
  return units;
}

}  // namespace embla
