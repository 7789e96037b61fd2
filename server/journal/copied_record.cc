#include "server/journal/copied_record.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "server/journal/update_record.h"
#include "server/journal/windows_bytes.h"

namespace embla {
namespace {

constexpr std::uint32_t kUpdate = 1, kRows = 2, kConfirmed = 3, kGone = 4;
constexpr std::uint32_t kFirst = 1, kLast = 2;
constexpr std::size_t kHeadBytes = 24;  // A multiple of 8: an update record follows.

absl::Status DamagedCopy(const char* why) {
  return absl::DataLossError(std::string("record of a copy: ") + why);
}

// The beginning of every record of a copy.
struct Head {
  TableId table{};
  std::uint32_t what = 0;
  std::uint64_t reign = 0;
  std::uint64_t order = 0;
};

void PutHead(const Head& head, RecordWriter& out) {
  out.Put(ToInt(head.table));
  out.Put(head.what);
  out.Put(head.reign);
  out.Put(head.order);
}

// One table, all of whose rows are applied: what a record of a copy is made with.
DecidedUpdate Wrapped(TableId table, const UpdateBatch& batch) {
  DecidedUpdate update{.batch = batch, .tables = {}, .time = absl::UnixEpoch()};
  update.tables.push_back({.table = table, .units = {}});
  return update;
}

absl::StatusOr<CopiedUpdate> GetUpdate(const Head& head, const SharedBuffer& bytes) {
  EMBLA_ASSIGN_OR_RETURN(DecidedUpdate update, DecodeUpdateRecord(bytes));
  const DecidedUpdate expected = Wrapped(head.table, {});
  const bool is_of_table = update.tables == expected.tables && update.time == expected.time &&
                           std::ranges::all_of(update.batch.parts, [&head](const UpdatePart& part) {
                             return part.table == head.table && part.replica_group == 0;
                           });
  if (!is_of_table) return DamagedCopy("its update is not one of its table");
  return CopiedUpdate{head.table, head.reign, head.order, std::move(update.batch)};
}

absl::StatusOr<CopiedRows> GetRows(const Head& head, RecordReader& in, const SharedBuffer& bytes) {
  const auto flags = in.Get<std::uint32_t>();
  CopiedRows piece{.table = head.table, .reign = head.reign, .order = head.order};
  piece.first = (flags & kFirst) != 0;
  piece.last = (flags & kLast) != 0;
  piece.windows = GetWindows(in);
  const std::uint32_t size = in.GetCount(1);
  const std::span<const std::byte> block = in.GetArray<std::byte>(size);
  if (!in.at_end() || flags > (kFirst | kLast))
    return DamagedCopy("rows are not as long as they say");
  if (block.empty()) return piece;
  const auto begin = static_cast<std::size_t>(block.data() - bytes.data());
  piece.row_block = bytes.Part(begin, begin + block.size());
  return piece;
}

}  // namespace

void PutCopied(const CopiedUpdate& update, RecordWriter& out) {
  PutHead({update.table, kUpdate, update.reign, update.order}, out);
  PutUpdate(Wrapped(update.table, update.batch), out);
}

void PutCopied(const CopiedRows& piece, RecordWriter& out) {
  PutHead({piece.table, kRows, piece.reign, piece.order}, out);
  out.Put((piece.first ? kFirst : 0) | (piece.last ? kLast : 0));
  PutWindows(piece.windows, out);
  out.Put(static_cast<std::uint32_t>(piece.row_block.size()));
  out.Reserve(piece.row_block.size());
  out.PutArray(piece.row_block.bytes());
}

void PutCopied(const CopyConfirmed& confirmed, RecordWriter& out) {
  PutHead({confirmed.table, kConfirmed}, out);
}

// The node takes the place of an order.
void PutCopied(const CopyGone& gone, RecordWriter& out) {
  PutHead({gone.table, kGone, 0, ToInt(gone.node)}, out);
}

absl::StatusOr<Decision> DecodeCopiedRecord(const SharedBuffer& bytes) {
  RecordReader in(bytes.bytes());
  Head head;
  head.table = TableId{in.Get<std::uint32_t>()};
  head.what = in.Get<std::uint32_t>();
  head.reign = in.Get<std::uint64_t>();
  head.order = in.Get<std::uint64_t>();
  if (!in.ok()) return DamagedCopy("it is cut off");
  if (head.what == kUpdate) return GetUpdate(head, bytes.Part(kHeadBytes, bytes.size()));
  if (head.what == kRows) return GetRows(head, in, bytes);
  const bool is_alone = in.at_end() && head.reign == 0;
  if (head.what == kConfirmed && is_alone && head.order == 0) return CopyConfirmed{head.table};
  if (head.what == kGone && is_alone && head.order <= UINT32_MAX) {
    return CopyGone{head.table, NodeId{static_cast<std::uint32_t>(head.order)}};
  }
  return DamagedCopy("it is none of update, rows, confirmed and gone");
}

}  // namespace embla
