// Takes snapshots of a node while it serves, so that its journal, and the time of a start, do not
// grow with what was ever trained. docs/snapshots.md.
//
// Failpoints: snapshot.begun (its image is taken), snapshot.rows (before those of a window are
// written), snapshot.whole, snapshot.truncated (the log is cut, older snapshots are still there).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"
#include "server/journal/snapshot_files.h"
#include "server/log/node_log.h"
#include "server/mover/mover.h"
#include "server/shard/node_image.h"

namespace embla {

struct SnapshotOptions {
  // A snapshot is taken when the journal has so many bytes since the last one, and at least this
  // share of what the base, the last snapshot of all rows, has.
  std::uint64_t journal_bytes_min = std::uint64_t{128} << 20;
  double journal_share = 0.35;
  // It is paced so that the journal grows by at most this share of the base meanwhile, under one of
  // all rows and under one of changes, and is no slower than so many bytes, when nothing is
  // trained. What the journal has grown by is kept until the next snapshot but one is there.
  double growth_share = 0.25;
  double changes_growth_share = 0.1;
  std::uint64_t bytes_per_second_min = std::uint64_t{64} << 20;
  // Where the journal has grown by this share of the base under it, and by so many bytes, the log
  // is written no faster than so: updates wait, and the disk is the snapshot's.
  double growth_limit = 0.3;
  std::uint64_t growth_limit_bytes_min = std::uint64_t{128} << 20;
  std::uint64_t behind_bytes_per_second = std::uint64_t{64} << 20;
  // It has the rows that have changed since the one before, until these have had this share of the
  // base's bytes: then it is the next base.
  double changes_share = 0.4;
  absl::Duration look_every = absl::Milliseconds(200);
  absl::Duration retry_after = absl::Seconds(1);  // After one that could not be taken.
};

// Thread safety: Take and Stop may be called from any thread.
class Snapshotter {
 public:
  // Mover::WhileLogged of the node's mover.
  using WhileLogged =
      std::function<bool(const std::function<void(const Mover::LoggedUnits&)>& work)>;
  // The node and its journal; nothing is owned, and everything outlives this object.
  struct Node {
    LogStorage& directory;
    NodeImages& images;
    UnitHost& units;
    NodeLog& log;
    std::function<std::uint64_t()> journal_bytes;  // Ever appended, or replayed.
    std::uint64_t log_process = 0;
    std::uint64_t segment_bytes_max = 0;
  };
  // `newest`: number of the newest snapshot so far, 0: none. About `expected_bytes` are expected of
  // the next one, which is a base: nobody knows what has changed since an earlier process.
  // `metrics` may be null.
  Snapshotter(const SnapshotOptions& options, Node node, std::uint64_t newest,
              std::uint64_t expected_bytes, Metrics* metrics);
  ~Snapshotter() { Stop(); }

  // Takes snapshots from now on, on a thread of its own, when they are due.
  void Start(WhileLogged while_logged);
  // A snapshot that is under way is given up.
  void Stop();

  // How long the journal's writer rests after so many bytes: it has grown beyond its limit under a
  // snapshot that is being written. Any thread.
  absl::Duration PauseAfter(std::size_t bytes) const {
    const bool is_behind = node_.journal_bytes() > journal_limit_.load(std::memory_order_relaxed);
    if (!is_behind) return absl::ZeroDuration();
    return absl::Seconds(static_cast<double>(bytes) /
                         static_cast<double>(options_.behind_bytes_per_second));
  }

  // Takes one now, as fast as it can. Unavailable: not now, as a copy is on its way, or the log or
  // the devices do not get on with a unit's move.
  absl::Status Take(const WhileLogged& while_logged);

 private:
  class Reading;

  void Run();
  bool IsDue() const;
  absl::Status TakePaced(const WhileLogged& while_logged, bool paced);
  // Returns its bytes.
  absl::StatusOr<std::uint64_t> Write(const NodeImages::Taken& taken, bool paced,
                                      const WhileLogged& while_logged, const SnapshotHead& head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  void LimitJournal();
  absl::StatusOr<NodeImages::Taken> Begin(const WhileLogged& while_logged, SnapshotHead* head);
  // Windows of the chunks that units on their way here have staged.
  void AddStaged(const std::vector<RestoredUnit>& units, std::vector<RowWindow>& windows) const;
  absl::Status Copy(std::vector<RowWindow> windows, bool changed_only, bool paced,
                    SnapshotWriter& writer);
  // Gives up what a start does not need any more: the journal behind the snapshot before this one,
  // from which a start goes on if this one is damaged, and chains before the last one.
  absl::Status GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  // Waits as the pace asks; false: it is to stop.
  bool Pace(std::uint64_t done, double share_done, double growth_share, absl::Time begun);

  const SnapshotOptions options_;
  const Node node_;
  Counter taken_;
  Counter waited_;
  Counter failed_;
  Counter bytes_;
  Gauge size_;
  Gauge journal_kept_;
  Histogram seconds_;
  Histogram held_;

  // The snapshots since the last base, itself included.
  struct Chain {
    std::uint64_t base = 0;  // Number; 0: the next snapshot begins a chain.
    std::uint64_t base_bytes = 0;
    std::uint64_t change_bytes = 0;     // The bytes of the others.
    std::uint64_t position = 0;         // Position of the newest,
    std::uint64_t position_before = 0;  // and of the one before it.
  };

  Mutex take_mu_;  // One snapshot at a time; before mu_.
  std::uint64_t newest_ ABSL_GUARDED_BY(take_mu_);
  Chain chain_ ABSL_GUARDED_BY(take_mu_);
  bool is_told_ ABSL_GUARDED_BY(take_mu_) = false;  // Why the next one waits.

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t base_bytes_ ABSL_GUARDED_BY(mu_);  // Bytes of the last base, or expected.
  // node_.journal_bytes() when the newest snapshot was begun.
  std::uint64_t journal_at_newest_ ABSL_GUARDED_BY(mu_) = 0;

  // Limit for node_.journal_bytes(), while a snapshot is written. Relaxed: nothing else hangs on
  // it.
  std::atomic<std::uint64_t> journal_limit_{std::numeric_limits<std::uint64_t>::max()};

  WhileLogged while_logged_;
  std::thread thread_;
};

}  // namespace embla
