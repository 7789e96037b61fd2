#include "server/journal/image_records.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/plan_json.h"
#include "server/journal/windows_bytes.h"

namespace embla {
namespace {

constexpr std::uint32_t kHasCopy = 1;
constexpr std::uint32_t kHasGroups = 2;
constexpr std::size_t kPlaceBytesMin = 32;

absl::Status DamagedImage(const char* record) {
  return absl::DataLossError(absl::StrCat(record, " record of a snapshot: damaged"));
}

void PutTime(absl::Time time, RecordWriter& out) { out.Put(absl::ToUnixNanos(time)); }
absl::Time GetTime(RecordReader& in) { return absl::FromUnixNanos(in.Get<std::int64_t>()); }

bool GetBool(RecordReader& in) {
  const auto value = in.Get<std::uint32_t>();
  if (value > 1) in.Fail();
  return value == 1;
}

void PutSpec(const TableSpec& spec, RecordWriter& out) {
  const std::string json = TableSpecToJson(spec);
  out.Put(static_cast<std::uint32_t>(json.size()));
  out.PutBytes(json);
}

TableSpec GetSpec(RecordReader& in) {
  const std::span<const char> json = in.GetBytes(in.GetCount(1));
  if (!in.ok()) return {};
  const std::string_view text(json.data(), json.size());
  absl::StatusOr<TableSpec> spec = TableSpecFromJson(text);
  if (spec.ok() && TableSpecToJson(*spec) == text) return *std::move(spec);
  in.Fail();
  return {};
}

void Put(const CopyImage& copy, RecordWriter& out) {
  out.Put(copy.position.reign);
  out.Put(copy.position.order);
  out.Put(std::uint32_t{copy.position.complete});
  out.Put(std::uint32_t{copy.has_all});
  out.Put(ToInt(copy.primary_since));
  out.Put(ToInt(copy.spec_version));
  PutSpec(copy.spec, out);
  out.Put(static_cast<std::uint32_t>(copy.history.size()));
  for (const auto& [since, spec] : copy.history) {
    out.Put(ToInt(since));
    PutSpec(spec, out);
  }
}

CopyImage GetCopy(RecordReader& in) {
  CopyImage copy;
  copy.position.reign = in.Get<std::uint64_t>();
  copy.position.order = in.Get<std::uint64_t>();
  copy.position.complete = GetBool(in);
  copy.has_all = GetBool(in);
  copy.primary_since = GetId<PlanVersion>(in);
  copy.spec_version = GetId<PlanVersion>(in);
  copy.spec = GetSpec(in);
  copy.history.resize(in.GetCount(sizeof(std::uint64_t) + sizeof(std::uint32_t)));
  for (auto& [since, spec] : copy.history) {
    since = GetId<PlanVersion>(in);
    spec = GetSpec(in);
  }
  return copy;
}

void Put(const GroupImage& groups, RecordWriter& out) {
  out.Put(std::uint32_t{groups.is_due});
  out.Put(static_cast<std::uint32_t>(groups.updates.size()));
  for (std::size_t group = 0; group < groups.updates.size(); ++group) {
    out.Put(groups.updates[group]);
    PutWindows(groups.counted[group], out);
  }
}

void GetPlace(RecordReader& in, PlacedRows& place) {
  Slice& slice = place.slice;
  slice.device.index = in.Get<std::uint32_t>();
  slice.column_begin = in.Get<std::uint32_t>();
  slice.column_end = in.Get<std::uint32_t>();
  slice.row_begin = in.Get<std::int64_t>();
  slice.row_end = in.Get<std::int64_t>();
  std::int64_t end = -1;  // End of the run before.
  const std::uint32_t runs = in.GetCount(2 * sizeof(std::int64_t));
  for (std::uint32_t i = 0; i < runs; ++i) {
    RowInterval run{.begin = in.Get<std::int64_t>()};
    run.end = in.Get<std::int64_t>();
    const bool fits = run.begin > end && run.begin < run.end && slice.row_begin <= run.begin &&
                      run.end <= slice.row_end;
    if (!fits) return in.Fail();
    place.present.Insert(run);
    end = run.end;
  }
  if (runs == 0 || slice.row_begin < 0 || slice.column_begin >= slice.column_end) in.Fail();
}

GroupImage GetGroups(RecordReader& in) {
  GroupImage groups;
  groups.is_due = GetBool(in);
  const std::uint32_t count = in.GetCount(sizeof(std::uint64_t) + sizeof(std::uint32_t));
  for (std::uint32_t group = 0; group < count; ++group) {
    groups.updates.push_back(in.Get<std::uint64_t>());
    groups.counted.push_back(GetWindows(in));
  }
  return groups;
}

}  // namespace

std::string EncodeImage(const ImageRecord& record) {
  RecordWriter out;
  out.Put(kSnapshotFormat);
  out.Put(std::uint32_t{0});
  out.Put(record.number);
  out.Put(record.base);
  out.Put(record.position);
  out.Put(record.log_process);
  PutTime(record.time, out);
  out.Put(static_cast<std::uint32_t>(record.sessions.size()));
  for (const SessionGate::Seen& seen : record.sessions) {
    out.Put(ToInt(seen.session));
    out.Put(ToInt(seen.seq));
    PutTime(seen.time, out);
  }
  return std::move(out).Take();
}

absl::StatusOr<ImageRecord> DecodeImage(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  const auto format = in.Get<std::uint32_t>();
  if (in.ok() && format != kSnapshotFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the snapshot has format ", format, ", this program knows ", kSnapshotFormat));
  }
  const bool is_known = in.Get<std::uint32_t>() == 0;
  ImageRecord record;
  record.number = in.Get<std::uint64_t>();
  record.base = in.Get<std::uint64_t>();
  record.position = in.Get<std::uint64_t>();
  record.log_process = in.Get<std::uint64_t>();
  record.time = GetTime(in);
  record.sessions.resize(in.GetCount(3 * sizeof(std::uint64_t)));
  for (SessionGate::Seen& seen : record.sessions) {
    seen.session = GetId<SessionId>(in);
    seen.seq = GetId<UpdateSeq>(in);
    seen.time = GetTime(in);
  }
  if (!in.at_end() || !is_known || record.position == 0 || record.base > record.number)
    return DamagedImage("image");
  return record;
}

std::string EncodeTableImage(const TableImage& record) {
  RecordWriter out;
  out.Put(ToInt(record.table));
  out.Put((record.copy.has_value() ? kHasCopy : 0u) | (record.groups.has_value() ? kHasGroups : 0));
  out.Put(record.highest_step);
  out.Put(record.first_unmade_step);
  out.Put(static_cast<std::uint32_t>(record.windows.size()));
  for (const UnitWindows& windows : record.windows) PutWindows(windows, out);
  if (record.copy.has_value()) Put(*record.copy, out);
  if (record.groups.has_value()) Put(*record.groups, out);
  return std::move(out).Take();
}

absl::StatusOr<TableImage> DecodeTableImage(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  TableImage record;
  record.table = GetId<TableId>(in);
  const auto flags = in.Get<std::uint32_t>();
  record.highest_step = in.Get<std::uint64_t>();
  record.first_unmade_step = in.Get<std::uint64_t>();
  record.windows.resize(in.GetCount(sizeof(std::uint32_t)));
  for (UnitWindows& windows : record.windows) windows = GetWindows(in);
  if ((flags & kHasCopy) != 0) record.copy = GetCopy(in);
  if ((flags & kHasGroups) != 0) record.groups = GetGroups(in);
  if (!in.at_end() || (flags & ~(kHasCopy | kHasGroups)) != 0) return DamagedImage("table");
  return record;
}

std::string EncodePlaces(const PlacesRecord& record) {
  RecordWriter out;
  out.Put(ToInt(record.table));
  out.Put(static_cast<std::uint32_t>(record.places.size()));
  for (const std::vector<PlacedRows>& of_group : record.places) {
    out.Put(static_cast<std::uint32_t>(of_group.size()));
    for (const PlacedRows& place : of_group) {
      out.Put(place.slice.device.index);
      out.Put(place.slice.column_begin);
      out.Put(place.slice.column_end);
      out.Put(place.slice.row_begin);
      out.Put(place.slice.row_end);
      const auto runs = place.present.intervals();
      out.Put(static_cast<std::uint32_t>(runs.size()));
      for (const RowInterval& run : runs) {
        out.Put(run.begin);
        out.Put(run.end);
      }
    }
  }
  return std::move(out).Take();
}

absl::StatusOr<PlacesRecord> DecodePlaces(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  PlacesRecord record;
  record.table = GetId<TableId>(in);
  record.places.resize(in.GetCount(sizeof(std::uint32_t)));
  for (std::vector<PlacedRows>& of_group : record.places) {
    of_group.resize(in.GetCount(kPlaceBytesMin));
    for (PlacedRows& place : of_group) GetPlace(in, place);
  }
  if (!in.at_end()) return DamagedImage("places");
  return record;
}

void PutRows(const RowsRecord& record, RecordWriter& out) {
  out.Reserve(96 + record.piece.size());
  out.Put(ToInt(record.window.table));
  out.Put(record.replica_group);
  out.Put(record.window.columns.begin);
  out.Put(record.window.columns.end);
  out.Put(record.window.rows.begin);
  out.Put(record.window.rows.end);
  out.Put(record.position);
  out.Put(record.rows_bytes);
  out.Put(record.offset);
  out.Put(std::uint64_t{record.piece.size()});
  out.PutArray(record.piece);
}

absl::StatusOr<RowsRecord> DecodeRows(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  RowsRecord record;
  record.window.table = GetId<TableId>(in);
  record.replica_group = in.Get<std::uint32_t>();
  record.window.columns.begin = in.Get<std::uint32_t>();
  record.window.columns.end = in.Get<std::uint32_t>();
  record.window.rows.begin = in.Get<std::int64_t>();
  record.window.rows.end = in.Get<std::int64_t>();
  record.position = in.Get<std::uint64_t>();
  record.rows_bytes = in.Get<std::uint64_t>();
  record.offset = in.Get<std::uint64_t>();
  record.piece = in.GetArray<std::byte>(in.Get<std::uint64_t>());
  const bool fits = record.offset <= record.rows_bytes &&
                    record.piece.size() <= record.rows_bytes - record.offset;
  if (!in.at_end() || !fits || record.rows_bytes > kWindowBytesMax) return DamagedImage("rows");
  return record;
}

std::string EncodeImageEnd(const ImageEndRecord& record) {
  RecordWriter out;
  out.Put(record.records);
  return std::move(out).Take();
}

absl::StatusOr<ImageEndRecord> DecodeImageEnd(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  const ImageEndRecord record{.records = in.Get<std::uint64_t>()};
  if (!in.at_end()) return DamagedImage("end");
  return record;
}

}  // namespace embla
