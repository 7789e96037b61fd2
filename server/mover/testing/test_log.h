// A node's log in memory, of which a prefix is synced: what a death leaves is that prefix, and
// perhaps a part of what lies behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "server/migration/node_step.h"
#include "server/mover/move_log.h"

namespace embla::testing {

// Thread safety: none.
class TestLog final : public MoveLog {
 public:
  struct ProcessBegins {};
  struct Update {
    UnitId unit;
    UnitUpdate update;
    bool is_gated = false;  // Its gate decided, and has the record of it.
  };
  struct Adopted {
    UnitId unit;
    UnitEpoch epoch{};
  };
  struct Folded {
    UnitId unit;
    PlanVersion plan{};
  };
  struct Reserved {
    UnitId unit;
    std::uint32_t device = 0;
    RowRun run;
  };
  struct Staged {
    UnitId unit;
    Chunk chunk;
    std::vector<std::byte> rows;
  };
  struct Control {
    UnitId unit;
    LogRecord record;
  };
  using Record = std::variant<ProcessBegins, Update, Adopted, Folded, Reserved, Staged, Control>;

  // Whether a record finds no room.
  std::function<bool()> is_full = [] { return false; };

  absl::Status AppendAdopted(const UnitId& unit, UnitEpoch epoch) override;
  absl::Status AppendFolded(const UnitId& unit, PlanVersion plan) override;
  absl::Status AppendReserved(const UnitId& unit, std::uint32_t device, const RowRun& run) override;
  absl::Status AppendChunk(const UnitId& unit, const Chunk& chunk,
                           std::span<const std::byte> rows) override;
  absl::Status AppendControl(const UnitId& unit, const LogRecord& record, Done done) override;
  absl::Status AppendUpdate(Update update);

  void SyncTail(Done done) override {
    WhenSynced([done = std::move(done)] { done(absl::OkStatus()); });
  }
  // Calls `done` once all that is in the log by now is synced.
  void WhenSynced(std::function<void()> done);

  // Syncs up to `records` more, and tells who waits for them.
  void Sync(std::size_t records);
  bool is_idle() const { return waiting_.empty() && synced_ == records_.size(); }
  // The process dies. At most `unsynced` of the unsynced records are left; waiting callers are
  // never told.
  void Die(std::size_t unsynced);
  std::size_t unsynced() const { return records_.size() - synced_; }
  std::size_t records() const { return records_.size(); }
  std::size_t synced() const { return synced_; }
  std::size_t CountStaged() const;  // Chunks.

  // A process begins: what is there is synced. Returns it.
  const std::vector<Record>& Open();

 private:
  struct Waiting {
    std::size_t position = 0;  // Position in the log, in records, that has to be synced.
    Done done;
  };

  absl::Status Append(Record record);

  std::vector<Record> records_;
  std::size_t synced_ = 0;
  std::deque<Waiting> waiting_;  // Ascending by position.
};

}  // namespace embla::testing
