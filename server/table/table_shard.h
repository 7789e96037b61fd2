// One table's slices on one node, spread over its devices.
//
// The slices and the table's shape never change while the object lives; rows belong to the thread
// of the device that holds them, and so does that device's copy of the hyper-parameters.
//
// Thread safety: methods that take a device are for that device's thread. All others may be called
// from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/instruments.h"
#include "core/plan/plan.h"
#include "core/plan/slice_map.h"
#include "core/plan/table_spec.h"
#include "server/storage/row_store.h"
#include "server/table/device_executor.h"
#include "server/table/replay_window.h"

namespace embla {

// A slice on a device of this node, with its memory.
struct OwnSlice {
  Slice slice;
  std::unique_ptr<RowStore> store;

  ColumnRange columns() const { return {slice.column_begin, slice.column_end}; }
};

// Columns that are cut nowhere on this node, and the devices that hold rows of them.
struct ColumnSegment {
  ColumnRange columns;
  DeviceSet devices;
};

// Where a copy of a replicated table stands in the order of its updates.
struct ReplicaPosition {
  std::uint64_t incarnation = 0;  // Of the primary that it follows; 0: none, initial values.
  std::uint64_t order = 0;        // The last update applied.
  bool complete = true;           // False while a snapshot is coming in.
};

class TableShard {
 public:
  using StoreFactory = std::function<absl::StatusOr<std::unique_ptr<RowStore>>(
      const TableSpec& spec, const Slice& slice)>;

  // Makes the stores of `slices` (of one tiling, all on this node, not empty) with `make_store`.
  // Takes long for large tables. `spec_version` is the plan that `spec` is from. Errors: those of
  // make_store.
  static absl::StatusOr<std::unique_ptr<TableShard>> Create(const TableSpec& spec,
                                                            PlanVersion spec_version,
                                                            std::vector<Slice> slices,
                                                            const StoreFactory& make_store,
                                                            Metrics* metrics);
  ~TableShard();

  TableId id() const { return id_; }
  const std::string& name() const { return name_; }
  std::int64_t rows() const { return rows_; }
  std::uint32_t dim() const { return dim_; }
  DType dtype() const { return dtype_; }
  const std::vector<Slice>& slices() const { return slices_; }

  // The devices that hold slices; updates run on all of them.
  DeviceSet devices() const { return devices_; }
  // Decides for the table in the order of its queue: replay, replication.
  std::uint32_t lead_device() const { return devices_.lowest(); }

  // The segments of `columns`, ascending. Columns that this node does not hold are left out.
  std::vector<ColumnSegment> Segments(ColumnRange columns) const;

  // InvalidArgument or FailedPrecondition unless the node holds rows of all of `columns`.
  absl::Status CheckColumns(ColumnRange columns) const;

  // What is the matter with `ids` when this node's devices did not find all of them.
  struct IdReport {
    absl::Status status;           // OutOfRange or FailedPrecondition, naming the first one.
    std::size_t out_of_range = 0;  // Ids that are no rows of the table.
  };
  IdReport Examine(std::span<const RowId> ids, ColumnRange columns, BoundsMode bounds) const;

  bool InTable(RowId id) const {
    return static_cast<std::uint64_t>(ToInt(id)) < static_cast<std::uint64_t>(rows_);
  }

  std::span<OwnSlice> slices(std::uint32_t device) { return by_device_[device].slices; }
  // The hyper-parameters in force on `device`.
  const TableSpec& spec(std::uint32_t device) const { return by_device_[device].spec; }
  // The plan that they are from.
  PlanVersion spec_version(std::uint32_t device) const { return by_device_[device].spec_version; }
  // Replaces them. `spec` differs in what may change only (SameShape).
  absl::Status SetSpec(std::uint32_t device, const TableSpec& spec, PlanVersion version);

  // On the lead device only.
  ReplicaPosition& replica_position() { return replica_position_; }

  // Of the whole shard.
  ReplayWindows& replay_windows() { return replay_windows_; }
  const TableMetrics& metrics() const { return metrics_; }

 private:
  // What one device's thread owns.
  struct OnDevice {
    TableSpec spec;
    PlanVersion spec_version{};
    std::vector<OwnSlice> slices;  // As slices_: by (column_begin, row_begin).
  };

  TableShard(const TableSpec& spec, PlanVersion spec_version, std::vector<Slice> slices,
             Metrics* metrics);
  void CountStorage(Metrics* metrics);

  const TableId id_;
  const std::string name_;
  const std::int64_t rows_;
  const std::uint32_t dim_;
  const DType dtype_;
  const std::vector<Slice> slices_;
  const SliceMap slice_map_;
  DeviceSet devices_;  // This and the next: constant after construction.
  std::vector<ColumnSegment> segments_;
  std::vector<OnDevice> by_device_;
  std::vector<TableDeviceMetrics> device_metrics_;
  ReplicaPosition replica_position_;
  ReplayWindows replay_windows_;
  const TableMetrics metrics_;
};

// Whether two specs differ at most in what `embla table set` may change.
bool SameShape(const TableSpec& a, const TableSpec& b);

}  // namespace embla
