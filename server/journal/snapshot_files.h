// Snapshots of a node beside its log: each is a log of its own (docs/node_log.md), whose files have
// the snapshot's name before their own. docs/snapshots.md.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "server/journal/image_records.h"
#include "server/journal/journal_records.h"
#include "server/log/log_segments.h"
#include "server/log/log_storage.h"
#include "server/mover/restored_unit.h"
#include "server/shard/node_image.h"

namespace embla {

// The files of one snapshot, as a directory of their own.
class SnapshotStorage final : public LogStorage {
 public:
  // `directory` is not owned and outlives this object.
  SnapshotStorage(LogStorage& directory, std::uint64_t number);

  // Numbers of the snapshots of which there are files, ascending.
  static absl::StatusOr<std::vector<std::uint64_t>> List(const LogStorage& directory);
  // Removes all of the snapshot's files.
  absl::Status RemoveAll();

  const std::string& path() const override { return directory_.path(); }
  std::string PathOf(const std::string& name) const override {
    return directory_.PathOf(prefix_ + name);
  }
  absl::StatusOr<std::vector<std::string>> List() const override;
  absl::Status ReadInto(const std::string& name, std::string& content) const override {
    return directory_.ReadInto(prefix_ + name, content);
  }
  absl::StatusOr<std::string> ReadBegin(const std::string& name, std::size_t bytes) const override {
    return directory_.ReadBegin(prefix_ + name, bytes);
  }
  absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& name,
                                                std::uint64_t reserved_bytes) override {
    return directory_.Open(prefix_ + name, reserved_bytes);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return directory_.Rename(prefix_ + from, prefix_ + to);
  }
  absl::Status Remove(const std::string& name) override {
    return directory_.Remove(prefix_ + name);
  }
  absl::Status SyncDirectory() override { return directory_.SyncDirectory(); }

 private:
  LogStorage& directory_;  // Not owned; outlives this object.
  const std::string prefix_;
};

// A node's image, and what the snapshot says of itself.
struct SnapshotHead {
  ImageRecord record;
  NodeImage image;
  std::vector<RestoredUnit> units;
};

// Writes one snapshot. Nothing is synced before its end: until then nobody looks at it.
// Thread safety: none.
class SnapshotWriter {
 public:
  // `directory` is not owned and outlives this object. ResourceExhausted: the disk is full.
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> Begin(LogStorage& directory,
                                                               std::uint64_t segment_bytes_max,
                                                               const SnapshotHead& head);
  // Positions rise. Errors end the snapshot: to be given up.
  absl::Status Add(const RowWindow& window, const WindowRows& rows);
  // Everything is on the disk when it returns: from now on the snapshot is whole.
  absl::Status Finish();

  std::uint64_t bytes() const { return bytes_; }

 private:
  SnapshotWriter(LogStorage& directory, std::uint64_t segment_bytes_max, std::uint64_t number);
  absl::Status Append(JournalKind kind, LogPayload payload);

  absl::Status BeginSegment();

  SnapshotStorage storage_;
  const std::uint64_t segment_bytes_max_;
  SegmentHeader segment_;  // The last one's; number 0: none.
  std::uint32_t last_crc_ = 0;
  LogLsn next_lsn_{1};
  std::vector<std::unique_ptr<LogFile>> files_;
  std::uint64_t bytes_ = 0;
};

// Reads one. Thread safety: none.
class SnapshotReader {
 public:
  // Reads its head, and looks for its end. NotFound: it was never whole. DataLoss: damaged, with
  // file and offset.
  // FailedPrecondition: of a newer program.
  static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(LogStorage& directory,
                                                              std::uint64_t number);

  SnapshotHead& head() { return head_; }
  std::uint64_t bytes() const { return bytes_; }

  // Reads all of it, and keeps nothing. Errors as for Open. Not after Front.
  absl::Status CheckAll();
  // Syncs what a process that died wrote last, perhaps to memory only. To be called before another
  // snapshot is removed for this one.
  absl::Status MakeDurable();

  struct Rows {
    RowWindow window;
    std::uint32_t replica_group = 0;
    std::uint64_t position = 0;
    Buffer bytes;
  };
  // The next rows; null: there are no more. They may be moved from, and Pop goes on behind them.
  // Errors as for Open.
  absl::StatusOr<Rows*> Front();
  void Pop() { front_.reset(); }

 private:
  SnapshotReader(LogStorage& directory, std::uint64_t number) : storage_(directory, number) {}
  // A record, with the bytes of its piece.
  struct Piece {
    RowsRecord record;
    Buffer bytes;
  };
  using Pieces = std::deque<Piece>;
  absl::Status FindSegments();
  absl::Status ReadHead(const LogRecordView& record);
  absl::Status Scan(std::size_t segment, const LogVisitor& visit);
  absl::StatusOr<Pieces> ReadPieces(std::size_t segment);
  // False: there are no more.
  absl::StatusOr<bool> HasPiece();

  SnapshotStorage storage_;
  SnapshotHead head_;
  std::uint64_t bytes_ = 0;
  std::vector<SegmentHeader> segments_;
  LogLsn next_lsn_{};    // Above all records.
  std::string content_;  // The content of one segment after the other; of who reads one.
  BufferPool buffers_;
  std::size_t next_segment_ = 0;              // The one after that of next_.
  std::future<absl::StatusOr<Pieces>> next_;  // The next segment's, while it is read.
  Pieces pieces_;
  std::optional<Rows> front_;
};

// A base and the snapshots that were taken since, which have the rows that had changed since the
// one before; none: nothing is whole. Where a snapshot is damaged, which is logged, the chain ends
// before it.
using SnapshotChain = std::vector<std::unique_ptr<SnapshotReader>>;
// Snapshots whose files are damaged, or that the disk does not give back.
struct DamagedSnapshots {
  std::set<std::uint64_t> numbers;  // Not to be opened again.
  absl::Status why;                 // The first error.
};
// The newest chain, of snapshots that are not among the `damaged` ones. An error of another one is
// added to these.
absl::StatusOr<SnapshotChain> OpenSnapshots(LogStorage& directory, DamagedSnapshots& damaged);

}  // namespace embla
