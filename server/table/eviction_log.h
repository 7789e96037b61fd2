// Rows that ids of one ZCH table lost on this node, with their optimizer state, kept until readers
// have had time to read them: the latest ones, up to a number of bytes.
//
// Thread safety: every method may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "core/metrics/table_series.h"
#include "server/zch/batch.h"

namespace embla {

// Evictions of one update or sweep on one device, in their order, and their rows as they were: a
// row block with state (core/rows/row_block.h), which names them by their ids.
struct EvictedRows {
  std::vector<zch::Eviction> evictions;
  Buffer row_block;

  std::size_t bytes() const { return evictions.size() * sizeof(zch::Eviction) + row_block.size(); }
};

class EvictionLog {
 public:
  // Wakes up when there may be something new to read. Notify must not block, nor call the log.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void Notify() = 0;
  };

  // Keeps up to `bytes_max` bytes. `series` counts evictions that were not read in time.
  EvictionLog(std::size_t bytes_max, const TableSeries& series);

  // Not 0, and different in each log: positions are of one log.
  std::uint64_t id() const { return id_; }

  void Append(EvictedRows rows);
  // While `skips`, evictions are numbered and not kept, as if nobody had read them in time.
  void Skip(bool skips);
  // The node has dropped the table: no more evictions follow.
  void Close();

  // Evictions are numbered from 0 as they come.
  struct Piece {
    std::shared_ptr<const EvictedRows> rows;  // Null: there is nothing at or after the position.
    std::uint64_t next = 0;                   // The position behind it.
    std::uint64_t missed = 0;                 // Evictions from the position on that are not kept.
    bool closed = false;                      // Nothing more will come.
  };
  // The entries of one append, from `position` on or, if these are no longer kept, the oldest ones.
  // Requires: `position` is 0 or a Piece::next.
  Piece Read(std::uint64_t position);

  void Subscribe(std::shared_ptr<Listener> listener);
  void Unsubscribe(const Listener* listener);

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::shared_ptr<const EvictedRows> rows;

    std::uint64_t end() const { return begin + rows->evictions.size(); }
  };
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotifyAll();

  const std::uint64_t id_;
  const std::size_t bytes_max_;

  Mutex mu_;
  TableSeries series_ ABSL_GUARDED_BY(mu_);  // None once the table is gone.
  Counter unread_ ABSL_GUARDED_BY(mu_);
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mu_);  // Without gaps.
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;      // Bytes of entries_.
  std::uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;     // Number of the next eviction.
  std::uint64_t read_ ABSL_GUARDED_BY(mu_) = 0;     // Highest eviction that a reader has read.
  bool skips_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
