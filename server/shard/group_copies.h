// Relations between the copies of a table with replica groups on one node: their updates are
// counted, and the copies are averaged.
//
// Averaging goes slice by slice, in chunks. Devices at one position of their groups hold the same
// slice; they have a communicator among themselves. GPUs that have access to each other's memory
// read all copies' rows there, and each finds the means for itself; other devices share the work,
// through the host's memory. Either way every copy gets the very same fp32 numbers
// (kernels/copy_mean.h), and rounds them to its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "core/plan/table_spec.h"
#include "core/rows/request.h"
#include "kernels/copy_mean.h"
#include "server/collective/communicator.h"
#include "server/gpu/device.h"
#include "server/migration/session_set.h"
#include "server/migration/unit_windows.h"
#include "server/shard/node_image.h"
#include "server/table/table_shard.h"

namespace embla {

class GroupCopies {
 public:
  // `gpus`: one per device, if they may read each other's memory, where they can; else none.
  //
  // Requires: `devices`, of the node, can be divided into the groups.
  GroupCopies(const TableSpec& spec, std::uint32_t devices, std::span<gpu::Device* const> gpus,
              Metrics* metrics);

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
  //
  // Requires: `rows` are not empty.
  absl::StatusOr<kernels::Divergence> Average(std::uint32_t device, const TableSpec& spec,
                                              OwnSlice& own, const RowIntervals& rows);

  const ReplicaGroupMetrics& metrics() const { return metrics_; }

 private:
  const std::uint32_t groups_;
  const std::uint32_t devices_per_group_;
  std::vector<std::unique_ptr<Communicator>> peers_;  // By device; its rank is the group.
  bool gpus_meet_ = false;                            // Constant once constructed.
  // By device: its rows, for its peers, who meet it before they look and before it goes on.
  std::vector<const kernels::StepRows*> shown_;
  const ReplicaGroupMetrics metrics_;

  mutable Mutex mu_;
  bool is_due_ ABSL_GUARDED_BY(mu_) = false;
  // By group.
  std::vector<std::uint64_t> updates_ ABSL_GUARDED_BY(mu_);
  std::vector<UnitWindows> counted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
