#include "server/mover/unit_replay.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

absl::Status Misplaced(const UnitId& unit, const char* what) {
  return absl::DataLossError(absl::StrCat("log: unit ", ToInt(unit.table), "/", unit.row_granule,
                                          "/", unit.column_granule, ": ", what));
}

bool IsImporting(const RestoredUnit& unit, MoveId move) {
  const auto& import = unit.durable.import;
  return import.has_value() && import->move == move;
}

// Whether `record` may follow what is known of `unit`: what Replay() requires.
class RecordCheck {
 public:
  explicit RecordCheck(const RestoredUnit& unit) : unit_(unit) {}

  absl::Status operator()(const OwnRecord& record) const {
    if (IsImporting(unit_, record.move)) return absl::OkStatus();
    return Misplaced(unit_.unit, "OWN of what was not being imported");
  }
  absl::Status operator()(const ImportRecord&) const {
    if (unit_.has_memory && !unit_.durable.import.has_value()) return absl::OkStatus();
    return Misplaced(unit_.unit, "IMPORT without memory, or during another");
  }
  absl::Status operator()(const ReleaseRecord& record) const {
    const bool owns = unit_.durable.epoch != UnitEpoch{0};
    if (owns && record.touched.size() == unit_.durable.touched.size()) return absl::OkStatus();
    return Misplaced(unit_.unit, "RELEASE of a unit that is not owned, or has other chunks");
  }
  absl::Status operator()(const RelocateRecord& record) const {
    const bool owns = unit_.durable.epoch != UnitEpoch{0};
    if (owns && IsImporting(unit_, record.move)) return absl::OkStatus();
    return Misplaced(unit_.unit, "RELOCATE of a unit that is not owned, or has no room");
  }
  absl::Status operator()(const AppliedUpdate&) const {
    return Misplaced(unit_.unit, "an update among the control records");
  }
  template <typename Record>
  absl::Status operator()(const Record&) const {
    return absl::OkStatus();
  }

 private:
  const RestoredUnit& unit_;
};

}  // namespace

RestoredUnit& UnitReplay::At(const UnitId& unit, std::uint32_t chunks) {
  const auto [it, is_new] = units_.try_emplace(unit);
  if (is_new) {
    it->second.unit = unit;
    it->second.durable.touched.assign(chunks, Lsn{0});
    it->second.staged.assign(chunks, Lsn{0});
  }
  return it->second;
}

void UnitReplay::Restore(std::uint64_t log_process, std::vector<RestoredUnit> units) {
  log_process_ = log_process;
  for (RestoredUnit& unit : units) {
    const UnitId id = unit.unit;
    units_.insert_or_assign(id, std::move(unit));
  }
}

void UnitReplay::BeginProcess() {
  ++log_process_;
  for (auto& [id, unit] : units_) embla::BeginProcess(unit.durable);
}

void UnitReplay::Adopt(const UnitId& id, std::uint32_t chunks, UnitEpoch epoch,
                       UnitWindows windows) {
  RestoredUnit& unit = At(id, chunks);
  UnitDurable& durable = unit.durable;
  if (std::exchange(unit.folded, PlanVersion{}) != PlanVersion{}) {
    durable.windows = std::move(windows);
    return;
  }
  durable = FreshUnit(chunks, FirstLsnOf(log_process_));
  durable.epoch = epoch;
  durable.windows = std::move(windows);
}

absl::Status UnitReplay::Apply(const UnitId& id, SessionId session, UpdateSeq seq,
                               UpdateSeq first_incomplete) {
  const auto it = units_.find(id);
  if (it == units_.end() || it->second.folded != PlanVersion{}) {
    return Misplaced(id, "an update of a unit without a record of its own");
  }
  UnitWindows& windows = it->second.durable.windows;
  if (windows.Classify(session, seq, first_incomplete) != UnitWindows::Verdict::kNew) {
    return Misplaced(id, "an update that was applied before, or is too new");
  }
  windows.Record(session, seq, first_incomplete);
  return absl::OkStatus();
}

absl::StatusOr<UnitWindows> UnitReplay::Fold(const UnitId& id, PlanVersion plan) {
  if (!Owns(id)) return Misplaced(id, "it is folded back, and not owned");
  RestoredUnit& unit = units_.at(id);
  unit.folded = plan;
  return std::exchange(unit.durable.windows, UnitWindows());
}

bool UnitReplay::HasApplied(const UnitId& id, SessionId session, UpdateSeq seq) const {
  const auto it = units_.find(id);
  return it != units_.end() && it->second.durable.windows.Classify(session, seq, UpdateSeq{1}) ==
                                   UnitWindows::Verdict::kApplied;
}

bool UnitReplay::Reserve(const UnitId& id, std::uint32_t chunks, std::uint32_t device,
                         const RowRun& run) {
  RestoredUnit& unit = At(id, chunks);
  unit.device = device;
  unit.run = run;
  return std::exchange(unit.has_memory, true) && !unit.durable.import.has_value();
}

absl::Status UnitReplay::Stage(const UnitId& id, const Chunk& chunk) {
  const auto it = units_.find(id);
  const bool is_expected = it != units_.end() && IsImporting(it->second, chunk.move) &&
                           chunk.chunk < it->second.staged.size();
  if (!is_expected) return Misplaced(id, "a chunk without an open import");
  it->second.staged[chunk.chunk] = chunk.version;
  return absl::OkStatus();
}

absl::Status UnitReplay::Control(const UnitId& id, const LogRecord& record) {
  const auto it = units_.find(id);
  if (it == units_.end()) return Misplaced(id, "a record of a unit without a beginning");
  RestoredUnit& unit = it->second;
  if (unit.folded != PlanVersion{}) return Misplaced(id, "a record of a unit that is folded back");
  EMBLA_RETURN_IF_ERROR(std::visit(RecordCheck(unit), record));
  Replay(record, unit.durable);
  const bool begins = std::holds_alternative<ImportRecord>(record);
  const bool ends = std::holds_alternative<OwnRecord>(record) ||
                    std::holds_alternative<DiscardRecord>(record) ||
                    std::holds_alternative<RelocateRecord>(record);
  if (begins || ends) unit.staged.assign(unit.staged.size(), Lsn{0});
  if (ends) unit.has_memory = false;
  return absl::OkStatus();
}

void UnitReplay::DropTable(TableId table) {
  std::erase_if(units_, [table](const auto& entry) { return entry.first.table == table; });
}

void UnitReplay::ForgetSessions(const SessionSet& sessions) {
  for (auto& [id, unit] : units_) unit.durable.windows.Forget(sessions);
}

bool UnitReplay::Owns(const UnitId& id) const {
  const auto it = units_.find(id);
  return it != units_.end() && it->second.durable.epoch != UnitEpoch{0};
}

std::vector<RestoredUnit> UnitReplay::Take() && {
  std::vector<RestoredUnit> units;
  units.reserve(units_.size());
  for (auto& [id, unit] : units_) units.push_back(std::move(unit));
  units_.clear();
  return units;
}

}  // namespace embla
