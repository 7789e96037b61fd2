// Takes snapshots of a node while it serves, so that its journal, and the time of a start, do not
// grow with what was ever trained. docs/snapshots.md.
//
// Failpoints: snapshot.begun (its image is taken), snapshot.rows (before those of a window are
// written), snapshot.whole, snapshot.truncated (the log is cut, older snapshots are still there),
// and recovery.rows (before those of a window are applied).
#pragma once

#include <cstdint>
#include <functional>
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
  // share of what the last one has.
  std::uint64_t journal_bytes_min = std::uint64_t{256} << 20;
  double journal_share = 0.75;
  // It is paced so that the journal grows by at most this share of it meanwhile,
  double growth_share = 0.5;
  // and no slower than this, when nothing is trained.
  std::uint64_t bytes_per_second_min = std::uint64_t{64} << 20;
  absl::Duration look_every = absl::Milliseconds(200);
  absl::Duration retry_after = absl::Seconds(5);  // After one that could not be taken.
};

// Thread safety: Take and Stop may be called from any thread.
class Snapshotter {
 public:
  // Mover::WhileAtRest of the node's mover.
  using WhileAtRest =
      std::function<bool(const std::function<void(const Mover::UnitsAtRest&)>& work)>;
  // The node and its journal; nothing is owned, and everything outlives this object.
  struct Node {
    LogStorage& directory;
    NodeImages& images;
    NodeLog& log;
    std::function<std::uint64_t()> journal_bytes;  // Ever appended, or replayed.
    std::uint64_t log_process = 0;
    std::uint64_t segment_bytes_max = 0;
  };
  // `newest`: number of the newest snapshot so far, 0: none; it has `newest_bytes`, or, without
  // one, so many are expected. `metrics` may be null.
  Snapshotter(const SnapshotOptions& options, Node node, std::uint64_t newest,
              std::uint64_t newest_bytes, Metrics* metrics);
  ~Snapshotter() { Stop(); }

  // Takes snapshots from now on, on a thread of its own, when they are due.
  void Start(WhileAtRest while_at_rest);
  // A snapshot that is under way is given up.
  void Stop();

  // Takes one now, as fast as it can. Unavailable: not now, as a unit or a copy is on its way.
  absl::Status Take(const WhileAtRest& while_at_rest);

 private:
  class Reading;

  void Run();
  bool IsDue() const;
  absl::Status TakePaced(const WhileAtRest& while_at_rest, bool paced);
  absl::StatusOr<NodeImages::Taken> Begin(const WhileAtRest& while_at_rest, SnapshotHead* head);
  absl::Status Copy(const std::vector<RowWindow>& windows, bool paced, SnapshotWriter& writer);
  // Gives up the journal before `head`, and the snapshots before it.
  absl::Status Replace(const SnapshotHead& head);
  // Waits as the pace asks; false: it is to stop.
  bool Pace(std::uint64_t done, double share_done, absl::Time begun);

  const SnapshotOptions options_;
  const Node node_;
  Counter taken_;
  Counter failed_;
  Counter bytes_;
  Gauge size_;
  Gauge journal_kept_;
  Histogram seconds_;
  Histogram held_;

  Mutex take_mu_;  // One snapshot at a time; before mu_.
  std::uint64_t newest_ ABSL_GUARDED_BY(take_mu_);

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t newest_bytes_ ABSL_GUARDED_BY(mu_);
  // node_.journal_bytes() when the newest one was begun.
  std::uint64_t journal_at_newest_ ABSL_GUARDED_BY(mu_) = 0;

  WhileAtRest while_at_rest_;
  std::thread thread_;
};

}  // namespace embla
