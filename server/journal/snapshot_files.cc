#include "server/journal/snapshot_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_delta.h"
#include "server/journal/unit_records.h"
#include "server/log/log_note.h"
#include "server/log/log_recovery.h"

namespace embla {
namespace {

constexpr std::string_view kPrefix = "snapshot-";
constexpr std::size_t kNumberDigits = 20;

std::string PrefixOf(std::uint64_t number) { return absl::StrFormat("%s%020u-", kPrefix, number); }

std::optional<std::uint64_t> NumberOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() <= kPrefix.size() + kNumberDigits) {
    return std::nullopt;
  }
  name = name.substr(kPrefix.size(), kNumberDigits);
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return number;
}

// The payload of a record, aligned as decoders need it.
Buffer Copied(std::string_view payload) {
  Buffer bytes = Buffer::Allocate(payload.size());
  if (!payload.empty()) std::memcpy(bytes.data(), payload.data(), payload.size());
  return bytes;
}

}  // namespace

SnapshotStorage::SnapshotStorage(LogStorage& directory, std::uint64_t number)
    : directory_(directory), prefix_(PrefixOf(number)) {}

absl::StatusOr<std::vector<std::uint64_t>> SnapshotStorage::List(const LogStorage& directory) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory.List());
  std::set<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const std::optional<std::uint64_t> number = NumberOf(name)) numbers.insert(*number);
  }
  return std::vector<std::uint64_t>(numbers.begin(), numbers.end());
}

absl::StatusOr<std::vector<std::string>> SnapshotStorage::List() const {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::string> all, directory_.List());
  std::vector<std::string> names;
  for (const std::string& name : all) {
    if (name.starts_with(prefix_)) names.push_back(name.substr(prefix_.size()));
  }
  return names;
}

absl::Status SnapshotStorage::RemoveAll() {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::string> names, List());
  for (const std::string& name : names) EMBLA_RETURN_IF_ERROR(Remove(name));
  return SyncDirectory();
}

SnapshotWriter::SnapshotWriter(LogStorage& directory, std::uint64_t segment_bytes_max,
                               std::uint64_t number)
    : storage_(directory, number), segment_bytes_max_(segment_bytes_max) {
  segment_.log_id = RandomId64();
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Begin(
    LogStorage& directory, std::uint64_t segment_bytes_max, const SnapshotHead& head) {
  std::unique_ptr<SnapshotWriter> writer(
      new SnapshotWriter(directory, segment_bytes_max, head.record.number));
  EMBLA_RETURN_IF_ERROR(writer->storage_.RemoveAll());
  const auto append = [&](JournalKind kind, const std::string& record) {
    return writer->Append(kind, LogPayload(record));
  };
  EMBLA_RETURN_IF_ERROR(append(JournalKind::kImage, EncodeImage(head.record)));
  const NodeImage& image = head.image;
  EMBLA_RETURN_IF_ERROR(
      append(JournalKind::kPlanDelta,
             EncodePlanDeltaRecord(image.self, DeltaBetween(Plan(), *image.plan))));
  EMBLA_RETURN_IF_ERROR(
      append(JournalKind::kClosedSessions, EncodeClosedSessionsRecord(image.closed)));
  for (const TableImage& table : image.tables) {
    EMBLA_RETURN_IF_ERROR(append(JournalKind::kTableImage, EncodeTableImage(table)));
    if (!table.places.has_value()) continue;
    EMBLA_RETURN_IF_ERROR(append(JournalKind::kPlaces, EncodePlaces({table.table, *table.places})));
  }
  for (const RestoredUnit& unit : head.units) {
    EMBLA_RETURN_IF_ERROR(IsOnTheMove(unit)
                              ? append(JournalKind::kUnitMoving, EncodeUnitMoving(unit))
                              : append(JournalKind::kUnitAtRest, EncodeUnitAtRest(unit)));
  }
  return writer;
}

absl::Status SnapshotWriter::Append(JournalKind kind, LogPayload payload) {
  OutgoingRecord record({.type = LogRecordType::kUpdate,
                         .level = Durability::kSynced,
                         .kind = static_cast<std::uint16_t>(kind)},
                        std::move(payload));
  if (files_.empty() || files_.back()->size() + record.bytes() > segment_bytes_max_) {
    EMBLA_RETURN_IF_ERROR(BeginSegment());
  }
  last_crc_ = record.Seal({.seed = SegmentSeed(segment_),
                           .offset = files_.back()->size(),
                           .lsn = next_lsn_,
                           .durable_end = LogLsn{1}});
  std::vector<std::string_view> pieces;
  record.AddPieces(&pieces);
  EMBLA_RETURN_IF_ERROR(files_.back()->Append(pieces));
  next_lsn_ = LogLsn{ToInt(next_lsn_) + 1};
  bytes_ += record.bytes();
  return absl::OkStatus();
}

absl::Status SnapshotWriter::BeginSegment() {
  ++segment_.number;
  segment_.first_lsn = next_lsn_;
  segment_.previous_bytes = files_.empty() ? 0 : files_.back()->size();
  segment_.previous_crc = last_crc_;
  EMBLA_ASSIGN_OR_RETURN(files_.emplace_back(),
                         storage_.Open(SegmentName(segment_.number), /*reserved_bytes=*/0));
  last_crc_ = SegmentSeed(segment_);
  return files_.back()->Append(EncodeSegmentHeader(segment_));
}

absl::Status SnapshotWriter::Add(const RowWindow& window, const WindowRows& rows) {
  const std::size_t piece_bytes = std::min<std::size_t>(kPieceBytesMax, segment_bytes_max_ / 2);
  const std::span<const std::byte> all = rows.bytes.bytes();
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(piece_bytes, all.size() - offset);
    RecordWriter record = RecordWriter::OfViews(nullptr);  // `rows` outlives it.
    PutRows(
        {window, rows.replica_group, rows.position, all.size(), offset, all.subspan(offset, size)},
        record);
    EMBLA_RETURN_IF_ERROR(Append(JournalKind::kRows, std::move(record).TakePayload()));
    offset += size;
  } while (offset < all.size());
  return absl::OkStatus();
}

absl::Status SnapshotWriter::Finish() {
  EMBLA_RETURN_IF_ERROR(
      Append(JournalKind::kImageEnd, LogPayload(EncodeImageEnd({ToInt(next_lsn_) - 1}))));
  for (const std::unique_ptr<LogFile>& file : files_) EMBLA_RETURN_IF_ERROR(file->Sync());
  EMBLA_RETURN_IF_ERROR(storage_.SyncDirectory());
  return WriteLogNote(storage_, {segment_.log_id, segment_.number, next_lsn_});
}

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(LogStorage& directory,
                                                                     std::uint64_t number) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(directory, number));
  EMBLA_RETURN_IF_ERROR(reader->FindSegments());
  // The head is before all rows.
  bool is_over = false;
  const auto read_head = [&](const LogRecordView& record) {
    is_over |= record.kind == static_cast<std::uint16_t>(JournalKind::kRows);
    return is_over ? absl::OkStatus() : reader->ReadHead(record);
  };
  for (std::size_t i = 0; i < reader->segments_.size() && !is_over; ++i) {
    EMBLA_RETURN_IF_ERROR(reader->Scan(i, read_head));
  }
  SnapshotHead& head = reader->head_;
  if (head.record.number != number || head.image.plan == nullptr) {
    return absl::DataLossError(absl::StrCat("snapshot ", number, " has no head of its own"));
  }
  NodeImage& image = head.image;
  image.position = head.record.position;
  image.time = head.record.time;
  image.sessions = head.record.sessions;
  return reader;
}

absl::Status SnapshotReader::FindSegments() {
  std::optional<std::uint64_t> ended_after;
  const auto find_end = [&](const LogRecordView& record) -> absl::Status {
    ended_after.reset();
    if (record.kind != static_cast<std::uint16_t>(JournalKind::kImageEnd)) return absl::OkStatus();
    EMBLA_ASSIGN_OR_RETURN(const ImageEndRecord end,
                           DecodeImageEnd(Copied(record.payload).bytes()));
    ended_after = end.records;
    return absl::OkStatus();
  };
  // A process that died before the note was written may have written the end.
  EMBLA_ASSIGN_OR_RETURN(const std::optional<LogNote> note, ReadLogNote(storage_));
  const LogLsn end = note.has_value() ? LogLsn{ToInt(note->next_lsn) - 1} : LogLsn{1};
  EMBLA_ASSIGN_OR_RETURN(RecoveredLog log, RecoverLog(storage_, find_end, end));
  segments_ = std::move(log.segments);
  next_lsn_ = log.report.next_lsn;
  if (!ended_after.has_value()) return absl::NotFoundError("the snapshot was never whole");
  for (const SegmentHeader& segment : segments_) bytes_ += segment.previous_bytes;
  bytes_ += log.newest->valid_bytes;
  const std::uint64_t records = ToInt(next_lsn_) - 2;  // Before the end.
  if (segments_.front().number == 1 && *ended_after == records) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the snapshot has ", segments_.size(), " files and ",
                                          records, " records, and says ", *ended_after));
}

absl::Status SnapshotReader::Scan(std::size_t segment, const LogVisitor& visit) {
  const std::string name = SegmentName(segments_[segment].number);
  EMBLA_RETURN_IF_ERROR(storage_.ReadInto(name, content_));
  const bool is_newest = segment + 1 == segments_.size();
  EMBLA_ASSIGN_OR_RETURN(const SegmentScan scan,
                         ScanSegment(content_, storage_.PathOf(name), is_newest, visit));
  if (!is_newest) return CheckFollows(storage_, scan, segments_[segment + 1]);
  if (scan.next_lsn == next_lsn_) return absl::OkStatus();
  return LogLoss(storage_.PathOf(name), scan.valid_bytes, "the end of the snapshot is not there");
}

absl::Status SnapshotReader::CheckAll() {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(Scan(i, /*visit=*/nullptr));
  }
  return absl::OkStatus();
}

absl::Status SnapshotReader::MakeDurable() {
  for (const SegmentHeader& segment : segments_) {
    EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<LogFile> file,
                           storage_.Open(SegmentName(segment.number), /*reserved_bytes=*/0));
    EMBLA_RETURN_IF_ERROR(file->Sync());
  }
  return storage_.SyncDirectory();
}

absl::Status SnapshotReader::ReadHead(const LogRecordView& record) {
  const auto kind = static_cast<JournalKind>(record.kind);
  if (kind == JournalKind::kImageEnd) return absl::OkStatus();
  const Buffer copied = Copied(record.payload);
  const std::span<const std::byte> bytes = copied.bytes();
  NodeImage& image = head_.image;
  if (kind == JournalKind::kImage) {
    EMBLA_ASSIGN_OR_RETURN(head_.record, DecodeImage(bytes));
  } else if (kind == JournalKind::kPlanDelta) {
    EMBLA_ASSIGN_OR_RETURN(const InstalledPlan installed, DecodePlanDeltaRecord(bytes, Plan()));
    image.plan = installed.plan;
    image.self = installed.self;
  } else if (kind == JournalKind::kClosedSessions) {
    EMBLA_ASSIGN_OR_RETURN(image.closed, DecodeClosedSessionsRecord(bytes));
  } else if (kind == JournalKind::kTableImage) {
    EMBLA_ASSIGN_OR_RETURN(image.tables.emplace_back(), DecodeTableImage(bytes));
  } else if (kind == JournalKind::kPlaces) {
    EMBLA_ASSIGN_OR_RETURN(PlacesRecord record, DecodePlaces(bytes));
    if (image.tables.empty() || image.tables.back().table != record.table) {
      return absl::DataLossError("places of another table than the one before them");
    }
    for (std::vector<PlacedRows>& of_group : record.places) {
      for (PlacedRows& place : of_group) place.slice.device.node = image.self;
    }
    image.tables.back().places = std::move(record.places);
  } else if (kind == JournalKind::kUnitAtRest) {
    EMBLA_ASSIGN_OR_RETURN(head_.units.emplace_back(), DecodeUnitAtRest(bytes));
  } else if (kind == JournalKind::kUnitMoving) {
    EMBLA_ASSIGN_OR_RETURN(head_.units.emplace_back(), DecodeUnitMoving(bytes));
  } else {
    return absl::FailedPreconditionError(absl::StrCat(
        "a snapshot has a record of kind ", record.kind, ", which this program does not know"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SnapshotReader::Pieces> SnapshotReader::ReadPieces(std::size_t segment) {
  Pieces pieces;
  const auto add = [this, &pieces](const LogRecordView& record) -> absl::Status {
    if (record.kind != static_cast<std::uint16_t>(JournalKind::kRows)) return absl::OkStatus();
    EMBLA_ASSIGN_OR_RETURN(RowsRecord rows, DecodeRows(std::as_bytes(std::span(record.payload))));
    Buffer bytes = buffers_.Take(rows.piece.size());
    if (!rows.piece.empty()) std::memcpy(bytes.data(), rows.piece.data(), rows.piece.size());
    rows.piece = bytes.bytes();
    pieces.push_back({rows, std::move(bytes)});
    return absl::OkStatus();
  };
  EMBLA_RETURN_IF_ERROR(Scan(segment, add));
  return pieces;
}

absl::StatusOr<bool> SnapshotReader::HasPiece() {
  while (pieces_.empty()) {
    const auto begin_next = [this] {
      if (next_segment_ == segments_.size()) return;
      next_ = std::async(std::launch::async,
                         [this, segment = next_segment_++] { return ReadPieces(segment); });
    };
    if (!next_.valid()) begin_next();
    if (!next_.valid()) return false;
    absl::StatusOr<Pieces> read = next_.get();
    EMBLA_RETURN_IF_ERROR(read.status());
    pieces_ = *std::move(read);
    begin_next();
  }
  return true;
}

absl::StatusOr<SnapshotReader::Rows*> SnapshotReader::Front() {
  if (front_.has_value()) return &*front_;
  std::uint64_t filled = 0;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const bool has_piece, HasPiece());
    if (!has_piece && !front_.has_value()) return nullptr;
    if (!has_piece) return absl::DataLossError("a snapshot ends amid the rows of a window");
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    const RowsRecord& record = piece.record;
    if (!front_.has_value()) {
      front_ = {record.window, record.replica_group, record.position, Buffer()};
      if (record.offset == 0 && record.piece.size() == record.rows_bytes) {
        front_->bytes = std::move(piece.bytes);
        return &*front_;
      }
      front_->bytes = Buffer::Allocate(record.rows_bytes);
    }
    const bool follows = record.offset == filled && record.window == front_->window &&
                         record.replica_group == front_->replica_group &&
                         record.position == front_->position &&
                         record.rows_bytes == front_->bytes.size();
    if (!follows || record.piece.empty()) {
      return absl::DataLossError("a piece of other rows amid those of a window");
    }
    std::memcpy(front_->bytes.data() + filled, record.piece.data(), record.piece.size());
    filled += record.piece.size();
    if (filled == record.rows_bytes) return &*front_;
  }
}

absl::StatusOr<SnapshotChain> OpenSnapshots(LogStorage& directory, DamagedSnapshots& damaged) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers,
                         SnapshotStorage::List(directory));
  SnapshotChain chain;
  for (const std::uint64_t number : numbers) {
    if (damaged.numbers.contains(number)) continue;
    absl::StatusOr<std::unique_ptr<SnapshotReader>> snapshot =
        SnapshotReader::Open(directory, number);
    if (absl::IsFailedPrecondition(snapshot.status())) return snapshot.status();
    if (absl::IsNotFound(snapshot.status())) continue;
    if (!snapshot.ok()) {
      damaged.why.Update(snapshot.status());
      LogError("journal", "a snapshot cannot be read number=", number,
               " reason=", snapshot.status().message());
      continue;
    }
    const ImageRecord& record = (*snapshot)->head().record;
    if (record.base == number) chain.clear();
    // One that is taken without its predecessor's rows says nothing.
    const bool follows = record.base == number ||
                         (!chain.empty() && chain.front()->head().record.number == record.base &&
                          chain.back()->head().record.number + 1 == number);
    if (follows) chain.push_back(*std::move(snapshot));
  }
  return chain;
}

}  // namespace embla
