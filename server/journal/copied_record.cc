#include "server/journal/copied_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "server/journal/record_bytes.h"
#include "server/journal/update_record.h"
#include "server/journal/windows_bytes.h"

namespace embla {
namespace {

constexpr std::uint32_t kUpdate = 1, kRows = 2, kConfirmed = 3, kGone = 4;
constexpr std::uint32_t kFirst = 1, kLast = 2;
constexpr std::size_t kHeadBytes = 24;  // A multiple of 8: an update record follows.

std::uint32_t WhatOf(ReplicaMessage::Kind kind) {
  switch (kind) {
    case ReplicaMessage::Kind::kUpdate:
      return kUpdate;
    case ReplicaMessage::Kind::kSnapshot:
      return kRows;
    case ReplicaMessage::Kind::kGone:
      return kGone;
    case ReplicaMessage::Kind::kProbe:
      break;
  }
  return kConfirmed;
}

absl::Status DamagedCopy(const char* why) {
  return absl::DataLossError(std::string("record of a copy: ") + why);
}

void PutRows(const ReplicaMessage& message, RecordWriter& out) {
  out.Put((message.first ? kFirst : 0) | (message.last ? kLast : 0));
  PutWindows(message.windows, out);
  out.Put(static_cast<std::uint32_t>(message.row_block.size()));
  out.PutArray(std::span<const std::byte>(message.row_block.bytes()));
}

// One table, all of whose rows are applied: what a record of a copy is made with.
DecidedUpdate Wrapped(TableId table, const UpdateBatch& batch) {
  DecidedUpdate update{.batch = batch, .tables = {}, .time = absl::UnixEpoch()};
  update.tables.push_back({.table = table, .units = {}});
  return update;
}

absl::Status GetUpdate(std::span<const std::byte> bytes, ReplicaMessage& message) {
  EMBLA_ASSIGN_OR_RETURN(DecidedUpdate update, DecodeUpdateRecord(bytes));
  const DecidedUpdate expected = Wrapped(message.table, {});
  const bool is_of_table =
      update.tables == expected.tables && update.time == expected.time &&
      std::ranges::all_of(update.batch.parts, [&message](const UpdatePart& part) {
        return part.table == message.table && part.replica_group == 0;
      });
  if (!is_of_table) return DamagedCopy("its update is not one of its table");
  message.kind = ReplicaMessage::Kind::kUpdate;
  message.update = std::move(update.batch);
  return absl::OkStatus();
}

absl::Status GetRows(RecordReader& in, ReplicaMessage& message) {
  const auto flags = in.Get<std::uint32_t>();
  message.first = (flags & kFirst) != 0;
  message.last = (flags & kLast) != 0;
  message.windows = GetWindows(in);
  const std::uint32_t size = in.GetCount(1);
  const std::span<const std::byte> rows = in.GetArray<std::byte>(size);
  if (!in.at_end() || flags > (kFirst | kLast))
    return DamagedCopy("rows are not as long as they say");
  message.row_block = Buffer::Allocate(rows.size());
  if (!rows.empty()) std::memcpy(message.row_block.data(), rows.data(), rows.size());
  return absl::OkStatus();
}

}  // namespace

std::string EncodeCopiedRecord(const ReplicaMessage& message) {
  RecordWriter out;
  out.Put(ToInt(message.table));
  out.Put(WhatOf(message.kind));
  out.Put(message.reign);
  out.Put(message.order);
  if (message.kind == ReplicaMessage::Kind::kSnapshot) PutRows(message, out);
  std::string bytes = std::move(out).Take();
  if (message.kind != ReplicaMessage::Kind::kUpdate) return bytes;
  return bytes + EncodeUpdateRecord(Wrapped(message.table, message.update));
}

absl::StatusOr<ReplicaMessage> DecodeCopiedRecord(std::span<const std::byte> bytes) {
  RecordReader in(bytes);
  ReplicaMessage message;
  message.table = TableId{in.Get<std::uint32_t>()};
  const auto what = in.Get<std::uint32_t>();
  message.reign = in.Get<std::uint64_t>();
  message.order = in.Get<std::uint64_t>();
  if (!in.ok()) return DamagedCopy("it is cut off");
  switch (what) {
    case kUpdate:
      EMBLA_RETURN_IF_ERROR(GetUpdate(bytes.subspan(kHeadBytes), message));
      return message;
    case kRows:
      message.kind = ReplicaMessage::Kind::kSnapshot;
      EMBLA_RETURN_IF_ERROR(GetRows(in, message));
      return message;
    case kConfirmed:
    case kGone:
      if (what == kGone) message.kind = ReplicaMessage::Kind::kGone;
      if (in.at_end()) return message;
      break;
    default:
      break;
  }
  return DamagedCopy("it is none of update, rows, confirmed and gone");
}

}  // namespace embla
