// Relations between the copies of a table with replica groups on one node: their updates are
// counted, and the copies are averaged.
//
// Averaging goes slice by slice, in chunks of about 1 MiB. Devices at one position of their groups
// hold the same slice; they have a communicator among themselves. Each device gets an equal share
// of a chunk's rows from all of them (AllToAll), makes the means (copy_mean.h), and hands them to
// all (AllGather): every copy gets the very same fp32 numbers and rounds them to its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "core/plan/table_spec.h"
#include "core/rows/request.h"
#include "server/collective/communicator.h"
#include "server/migration/session_set.h"
#include "server/migration/unit_windows.h"
#include "server/shard/copy_mean.h"
#include "server/shard/node_image.h"
#include "server/table/table_shard.h"

namespace embla {

class GroupCopies {
 public:
  // Requires: `devices`, of the node, can be divided into the groups.
  GroupCopies(const TableSpec& spec, std::uint32_t devices, Metrics* metrics);

  std::uint32_t groups() const { return groups_; }
  std::uint32_t GroupOf(std::uint32_t device) const { return device / devices_per_group_; }

  // An update of `group`, or a part of it, is applied: it counts once, whatever rows of it come
  // later. True when all groups have had `every` (0: never) since this last was, or since
  // ResetCounts. Thread safety, of all down to ForgetSessions: any thread.
  bool CountUpdate(std::uint32_t group, const UpdateBatch& update, std::uint32_t every);
  void ResetCounts();
  // An averaging that CountUpdate asked for has been written down, or was done.
  void NoteAveraged();
  GroupImage image() const;
  void Restore(const GroupImage& image);
  // Forgets closed sessions, whose updates are refused from now on.
  void ForgetSessions(const SessionSet& sessions);

  // `rows` of `own`, a slice of `spec` on `device`, become the mean of their copies. Called on that
  // device's thread, at the same time with the same rows by the devices that hold the copies. After
  // an error the rows of some chunks are averaged and the others are as they were, alike on all
  // copies.
  absl::StatusOr<Divergence> Average(std::uint32_t device, const TableSpec& spec, OwnSlice& own,
                                     const RowIntervals& rows);

  const ReplicaGroupMetrics& metrics() const { return metrics_; }

 private:
  const std::uint32_t groups_;
  const std::uint32_t devices_per_group_;
  std::vector<std::unique_ptr<Communicator>> peers_;  // By device; its rank is the group.
  const ReplicaGroupMetrics metrics_;

  mutable Mutex mu_;
  bool is_due_ ABSL_GUARDED_BY(mu_) = false;
  // By group.
  std::vector<std::uint64_t> updates_ ABSL_GUARDED_BY(mu_);
  std::vector<UnitWindows> counted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
