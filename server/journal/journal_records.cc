#include "server/journal/journal_records.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"
#include "core/wire/plan_bytes.h"

namespace embla {
namespace {

absl::Status Damaged(const char* record) {
  return absl::DataLossError(absl::StrCat(record, " record: not as long as it says"));
}

void Put(const SessionSet& sessions, RecordWriter& out) {
  out.Put(static_cast<std::uint32_t>(sessions.ranges().size()));
  for (const auto& [begin, end] : sessions.ranges()) {
    out.Put(ToInt(begin));
    out.Put(ToInt(end));
  }
}

SessionSet GetSessions(RecordReader& in) {
  std::vector<SessionSet::Range> ranges(in.GetCount(sizeof(SessionSet::Range)));
  for (auto& [begin, end] : ranges) {
    begin = SessionId{in.Get<std::uint64_t>()};
    end = SessionId{in.Get<std::uint64_t>()};
  }
  absl::StatusOr<SessionSet> sessions = SessionSet::FromRanges(std::move(ranges));
  if (sessions.ok()) return *std::move(sessions);
  in.Fail();
  return {};
}

}  // namespace

std::string EncodeClosedSessionsRecord(const ClosedSessions& closed) {
  RecordWriter out;
  Put(closed.refused, out);
  Put(closed.settled, out);
  return std::move(out).Take();
}

absl::StatusOr<ClosedSessions> DecodeClosedSessionsRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  ClosedSessions closed;
  closed.refused = GetSessions(in);
  closed.settled = GetSessions(in);
  if (!in.at_end()) return Damaged("closed sessions");
  return closed;
}

std::string EncodeProcessRecord(const ProcessRecord& record) {
  RecordWriter out;
  out.Put(kJournalFormat);
  out.Put(std::uint32_t{0});
  out.Put(record.log_process);
  return std::move(out).Take();
}

absl::StatusOr<ProcessRecord> DecodeProcessRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  const auto format = in.Get<std::uint32_t>();
  if (in.ok() && format != kJournalFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the journal has format ", format, ", this program knows ", kJournalFormat));
  }
  const bool is_known = in.Get<std::uint32_t>() == 0;
  ProcessRecord record;
  record.log_process = in.Get<std::uint64_t>();
  if (!in.at_end() || !is_known) return Damaged("process");
  return record;
}

std::string EncodePlanDeltaRecord(NodeId self, const PlanDelta& delta) {
  const std::string message = wire::ToBytes(delta);
  RecordWriter out;
  out.Put(ToInt(self));
  out.Put(static_cast<std::uint32_t>(message.size()));
  out.PutArray(std::span<const char>(message));
  return std::move(out).Take();
}

absl::StatusOr<InstalledPlan> DecodePlanDeltaRecord(std::span<const std::byte> bytes,
                                                    const Plan& before) {
  RecordReader in(bytes);
  InstalledPlan record;
  record.self = NodeId{in.Get<std::uint32_t>()};
  const std::uint32_t size = in.GetCount(1);
  const std::span<const char> message = in.GetArray<char>(size);
  if (!in.at_end()) return Damaged("plan");
  const absl::StatusOr<PlanDelta> delta = wire::PlanDeltaFromBytes(message);
  absl::StatusOr<PlanPtr> plan = delta.ok() ? Apply(*delta, before) : delta.status();
  if (!plan.ok()) {
    return absl::DataLossError(absl::StrCat("plan record: ", Message(plan.status())));
  }
  record.plan = *std::move(plan);
  return record;
}

absl::StatusOr<InstalledPlan> DecodePlanRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  InstalledPlan record;
  record.self = NodeId{in.Get<std::uint32_t>()};
  const std::uint32_t size = in.GetCount(1);
  const std::span<const char> json = in.GetArray<char>(size);
  if (!in.at_end()) return Damaged("plan");
  absl::StatusOr<Plan> plan = PlanFromJson({json.data(), json.size()});
  if (!plan.ok()) {
    return absl::DataLossError(absl::StrCat("plan record: ", Message(plan.status())));
  }
  if (const absl::Status valid = plan->Validate(); !valid.ok()) {
    return absl::DataLossError(absl::StrCat("plan record: ", Message(valid)));
  }
  record.plan = std::make_shared<const Plan>(*std::move(plan));
  return record;
}

std::string EncodeSyncRecord(std::span<const TableId> tables) {
  RecordWriter out;
  out.Put(static_cast<std::uint32_t>(tables.size()));
  for (const TableId table : tables) out.Put(ToInt(table));
  return std::move(out).Take();
}

absl::StatusOr<SyncRecord> DecodeSyncRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  SyncRecord record;
  for (std::uint32_t left = in.GetCount(sizeof(TableId)); left > 0; --left) {
    record.tables.push_back(TableId{in.Get<std::uint32_t>()});
  }
  if (!in.at_end()) return Damaged("sync");
  return record;
}

void PutAveraged(const DecidedSync& sync, RecordWriter& out) {
  out.Put(static_cast<std::uint32_t>(sync.tables.size()));
  for (const DecidedSync::Table& table : sync.tables) {
    out.Put(ToInt(table.table));
    out.Put(static_cast<std::uint32_t>(table.rows.size()));
    for (const AveragedRows& averaged : table.rows) {
      out.Put(averaged.columns.begin);
      out.Put(averaged.columns.end);
      out.Put(averaged.rows.begin);
      out.Put(averaged.rows.end);
    }
  }
}

absl::StatusOr<DecidedSync> DecodeAveragedRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  DecidedSync sync;
  sync.tables.resize(in.GetCount(2 * sizeof(std::uint32_t)));
  for (DecidedSync::Table& table : sync.tables) {
    table.table = TableId{in.Get<std::uint32_t>()};
    table.rows.resize(in.GetCount(2 * sizeof(std::uint32_t) + 2 * sizeof(std::int64_t)));
    for (AveragedRows& averaged : table.rows) {
      averaged.columns.begin = in.Get<std::uint32_t>();
      averaged.columns.end = in.Get<std::uint32_t>();
      averaged.rows.begin = in.Get<std::int64_t>();
      averaged.rows.end = in.Get<std::int64_t>();
      if (averaged.columns.begin >= averaged.columns.end) in.Fail();
      if (averaged.rows.begin < 0 || averaged.rows.begin >= averaged.rows.end) in.Fail();
    }
  }
  if (!in.at_end()) return Damaged("averaging");
  return sync;
}

void PutSweep(const DecidedSweep& sweep, RecordWriter& out) {
  out.Put(ToInt(sweep.table));
  out.Put(static_cast<std::uint32_t>(sweep.sweep.rule));
  out.Put(sweep.sweep.step);
  out.Put(sweep.sweep.before_step);
  out.Put(static_cast<std::uint32_t>(sweep.rows.size()));
  for (const RowInterval& rows : sweep.rows) {
    out.Put(rows.begin);
    out.Put(rows.end);
  }
}

absl::StatusOr<DecidedSweep> DecodeSweepRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  DecidedSweep sweep;
  sweep.table = TableId{in.Get<std::uint32_t>()};
  const auto rule = in.Get<std::uint32_t>();
  sweep.sweep.rule = static_cast<ZchSweep::Rule>(rule);
  if (rule != 1 && rule != 2) in.Fail();
  sweep.sweep.step = in.Get<std::uint64_t>();
  sweep.sweep.before_step = in.Get<std::uint64_t>();
  for (std::uint32_t left = in.GetCount(2 * sizeof(std::int64_t)); left > 0; --left) {
    RowInterval& rows = sweep.rows.emplace_back();
    rows.begin = in.Get<std::int64_t>();
    rows.end = in.Get<std::int64_t>();
    if (rows.begin < 0 || rows.end <= rows.begin) in.Fail();
  }
  if (!in.at_end()) return Damaged("sweep");
  return sweep;
}

}  // namespace embla
