#include "server/journal/record_text.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "server/journal/decision_record.h"
#include "server/journal/unit_records.h"

namespace embla {
namespace {

// Null: no kind of this program.
const char* NameOf(JournalKind kind) {
  switch (kind) {
    case JournalKind::kProcess:
      return "process";
    case JournalKind::kPlan:
    case JournalKind::kPlanDelta:
      return "plan";
    case JournalKind::kUpdate:
      return "update";
    case JournalKind::kBefore:
      return "before";
    case JournalKind::kSync:
    case JournalKind::kAveraged:
      return "averaged";
    case JournalKind::kAdopted:
      return "adopted";
    case JournalKind::kReserved:
      return "reserved";
    case JournalKind::kChunk:
      return "chunk";
    case JournalKind::kControl:
      return "control";
    case JournalKind::kSweep:
      return "sweep";
    case JournalKind::kClosedSessions:
      return "closed";
    case JournalKind::kCopied:
      return "copied";
    case JournalKind::kStep:
      return "step";
    case JournalKind::kFolded:
      return "folded";
    case JournalKind::kImage:
      return "image";
    case JournalKind::kTableImage:
      return "table";
    case JournalKind::kUnitAtRest:
      return "unit";
    case JournalKind::kRows:
      return "rows";
    case JournalKind::kImageEnd:
      return "end";
    case JournalKind::kUnitMoving:
      return "unit on the move";
    case JournalKind::kPlaces:
      return "places";
  }
  return nullptr;
}

// Turns records into words, with the names that tables have in a plan.
class Words {
 public:
  explicit Words(const Plan& plan) : plan_(plan) {}

  std::string Table(TableId id) const {
    const TablePlan* const table = plan_.FindTable(id);
    return table == nullptr ? absl::StrCat("table ", ToInt(id)) : table->spec.name;
  }
  std::string Unit(const UnitId& unit) const {
    return absl::StrCat(Table(unit.table), " unit ", unit.row_granule, "/", unit.column_granule);
  }
  std::string Ids(const UpdateBatch& batch) const {
    std::map<TableId, std::size_t> ids;
    for (const UpdatePart& part : batch.parts) ids[part.table] += part.ids.size();
    return absl::StrJoin(ids, ", ", [this](std::string* out, const auto& of_table) {
      absl::StrAppend(out, Table(of_table.first), " ", of_table.second, " ids");
    });
  }

  std::string operator()(const DecidedUpdate& update) const {
    std::size_t applied = 0, left_out = 0;
    for (const DecidedTable& table : update.tables) {
      for (const DecidedUnit& unit : table.units) ++(unit.applies ? applied : left_out);
    }
    std::string units;
    if (applied + left_out > 0) {
      units = absl::StrCat("; units with gates: ", applied, " applied, ", left_out, " left out");
    }
    return absl::StrCat("session ", ToInt(update.batch.session), " seq ", ToInt(update.batch.seq),
                        " step ", update.batch.step, ": ", Ids(update.batch), units);
  }
  std::string operator()(const CopiedUpdate& update) const {
    return absl::StrCat("update ", update.order, " of the primary: ", Ids(update.batch));
  }
  std::string operator()(const CopiedRows& piece) const {
    return absl::StrCat(Table(piece.table), ": ", piece.row_block.size(), " bytes of a copy as of ",
                        piece.order, piece.first ? ", the first" : "",
                        piece.last ? ", the last" : "");
  }
  std::string operator()(const CopyConfirmed& confirmed) const {
    return absl::StrCat(Table(confirmed.table), ": has every acknowledged update");
  }
  std::string operator()(const CopyGone& gone) const {
    return absl::StrCat(Table(gone.table), ": node ", ToInt(gone.node), " has no copy any more");
  }
  std::string operator()(const DecidedSync& sync) const {
    return absl::StrJoin(sync.tables, ", ", [this](std::string* out, const auto& table) {
      absl::StrAppend(out, Table(table.table), " ", table.rows.size(), " ranges of rows");
    });
  }
  std::string operator()(const ClosedSessions& closed) const {
    return absl::StrCat(closed.refused.size(), " sessions refused, ", closed.settled.size(),
                        " settled");
  }
  std::string operator()(const InstalledPlan& installed) const {
    return absl::StrCat("node ", ToInt(installed.self), ", plan ", ToInt(installed.plan->version()),
                        ", tables: ", installed.plan->tables().size());
  }
  std::string operator()(const DecidedBefore&) const { return {}; }
  std::string operator()(const DecidedSweep& sweep) const {
    return absl::StrCat(Table(sweep.table), ": ", sweep.rows.size(), " ranges of rows, at step ",
                        sweep.sweep.step);
  }

 private:
  const Plan& plan_;
};

std::string ControlText(const LogRecord& record) {
  const auto move = [](const char* what, MoveId id) {
    return absl::StrCat(what, ", move ", ToInt(id));
  };
  if (const auto* own = std::get_if<OwnRecord>(&record)) {
    return absl::StrCat(move("owned", own->move), ", epoch ", ToInt(own->epoch));
  }
  if (const auto* import = std::get_if<ImportRecord>(&record)) {
    return absl::StrCat(move("imported", import->move), " from node ", ToInt(import->source));
  }
  if (const auto* end = std::get_if<AbortRecord>(&record)) return move("aborted", end->move);
  if (const auto* left = std::get_if<ReleaseRecord>(&record))
    return move("released", left->released.move);
  if (const auto* trim = std::get_if<TrimRecord>(&record)) return move("trimmed", trim->move);
  if (const auto* drop = std::get_if<DiscardRecord>(&record)) return move("discarded", drop->move);
  if (const auto* there = std::get_if<RelocateRecord>(&record)) {
    return move("on another device", there->move);
  }
  return "an update";
}

}  // namespace

absl::StatusOr<RecordText> RecordTexts::Describe(const LogRecordView& record) {
  const auto kind = static_cast<JournalKind>(record.kind);
  const char* const name = NameOf(kind);
  if (name == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("record ", ToInt(record.lsn), " is of kind ",
                                                      record.kind, ": a newer program wrote it"));
  }
  // Decoders need aligned bytes.
  Buffer bytes = Buffer::Allocate(record.payload.size());
  if (!record.payload.empty()) {
    std::memcpy(bytes.data(), record.payload.data(), record.payload.size());
  }
  absl::StatusOr<std::string> text = TextOf(kind, std::move(bytes));
  if (text.ok()) return RecordText{name, *std::move(text)};
  return absl::Status(text.status().code(), absl::StrCat("record ", ToInt(record.lsn), " (", name,
                                                         "): ", text.status().message()));
}

absl::StatusOr<std::string> RecordTexts::TextOf(JournalKind kind, const SharedBuffer& memory) {
  const std::span<const std::byte> bytes = memory.bytes();
  const Words words(*plan_);
  if (IsDecision(kind)) {
    EMBLA_ASSIGN_OR_RETURN(const Decision decision, DecodeDecision(kind, memory, *plan_));
    std::string text = std::visit(words, decision);
    if (const auto* installed = std::get_if<InstalledPlan>(&decision)) plan_ = installed->plan;
    return text;
  }
  switch (kind) {
    case JournalKind::kProcess: {
      EMBLA_ASSIGN_OR_RETURN(const ProcessRecord process, DecodeProcessRecord(bytes));
      ++processes_;
      return absl::StrCat("number ", process.log_process);
    }
    case JournalKind::kSync: {
      EMBLA_ASSIGN_OR_RETURN(const SyncRecord sync, DecodeSyncRecord(bytes));
      return absl::StrJoin(sync.tables, ", ", [&words](std::string* out, TableId table) {
        absl::StrAppend(out, words.Table(table));
      });
    }
    case JournalKind::kAdopted: {
      EMBLA_ASSIGN_OR_RETURN(const AdoptedUnitRecord adopted, DecodeAdoptedUnit(bytes));
      return absl::StrCat(words.Unit(adopted.unit), ": epoch ", ToInt(adopted.epoch));
    }
    case JournalKind::kFolded: {
      EMBLA_ASSIGN_OR_RETURN(const FoldedUnitRecord folded, DecodeFoldedUnit(bytes));
      return absl::StrCat(words.Unit(folded.unit), ": at plan ", ToInt(folded.plan));
    }
    case JournalKind::kReserved: {
      EMBLA_ASSIGN_OR_RETURN(const ReservedUnitRecord room, DecodeReservedUnit(bytes));
      return absl::StrCat(words.Unit(room.unit), ": room on device ", room.device);
    }
    case JournalKind::kChunk: {
      EMBLA_ASSIGN_OR_RETURN(const ChunkPieceRecord piece, DecodeChunkPiece(bytes));
      return absl::StrCat(words.Unit(piece.unit), ": chunk ", piece.chunk.chunk, ", ",
                          piece.rows.size(), " of ", piece.chunk_bytes, " bytes at ", piece.offset);
    }
    case JournalKind::kControl: {
      EMBLA_ASSIGN_OR_RETURN(const UnitControlRecord control, DecodeUnitControl(bytes));
      return absl::StrCat(words.Unit(control.unit), ": ", ControlText(control.record));
    }
    default:
      return std::string();
  }
}

}  // namespace embla
