// One table's slices on one node, spread over its devices: a layout.
//
// A layout never changes. When a live move brings or takes a slice, the next layout shares with
// this one what belongs to the table: the other slices, the hyper-parameters, the record of
// updates. Rows belong to the thread of the device that holds them, and so does that device's copy
// of the hyper-parameters.
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

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/instruments.h"
#include "core/plan/id_rows.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "server/migration/unit_windows.h"
#include "server/storage/row_store.h"
#include "server/table/device_executor.h"
#include "server/table/own_slice.h"
#include "server/table/own_slices.h"
#include "server/table/row_intervals.h"
#include "server/table/step_bound.h"
#include "server/table/table_units.h"

namespace embla {

// Columns that are cut nowhere on this node, and the devices that hold rows of them.
struct ColumnSegment {
  ColumnRange columns;
  DeviceSet devices;
};
using ColumnSegments = absl::InlinedVector<ColumnSegment, 1>;  // Most tables have one.

// Position of a replicated table's copy in the order of its updates.
struct ReplicaPosition {
  std::uint64_t reign = 0;  // Reign of the primary that it follows; 0: none, initial values.
  std::uint64_t order = 0;  // The last update applied.
  bool complete = true;     // False while a snapshot is coming in.
};

class TableShard {
 public:
  using MemoryFactory =
      std::function<absl::StatusOr<SliceMemory>(const TableSpec& spec, const Slice& slice)>;

  // Makes the memory of `slices` (of one tiling, all on this node, not empty) with `make_memory`;
  // every row is present. Takes long for large tables. `spec_version` is the plan that `spec` is
  // from. Errors: those of make_memory.
  static absl::StatusOr<std::unique_ptr<TableShard>> Create(const TableSpec& spec,
                                                            PlanVersion spec_version,
                                                            const std::vector<Slice>& slices,
                                                            const MemoryFactory& make_memory,
                                                            Metrics* metrics);
  // A table of which `slice`, with no row present, is the first that is here; null: none is.
  // `lead` leads it.
  static std::unique_ptr<TableShard> CreateAround(const TableSpec& spec, PlanVersion spec_version,
                                                  std::uint32_t lead,
                                                  std::shared_ptr<OwnSlice> slice,
                                                  Metrics* metrics);
  // The layout with `slice` too (unless it is null), and without those that are released. `spec` is
  // in force on all devices.
  std::unique_ptr<TableShard> With(std::shared_ptr<OwnSlice> slice, const TableSpec& spec,
                                   PlanVersion spec_version) const;

  TableId id() const { return table_->id; }
  const std::string& name() const { return table_->name; }
  std::int64_t rows() const { return table_->rows; }
  std::uint32_t dim() const { return table_->dim; }
  DType dtype() const { return table_->dtype; }
  const std::vector<Slice>& slices() const { return slices_; }

  // The devices that hold slices, and the lead device; updates run on all of them.
  DeviceSet devices() const { return devices_; }
  // Decides for the table in the order of its queue: replay, replication, moves. The same in all
  // layouts.
  std::uint32_t lead_device() const { return table_->lead_device; }

  // The segments of `columns`, ascending. Columns that this node does not hold are left out.
  ColumnSegments Segments(ColumnRange columns) const;

  // InvalidArgument or FailedPrecondition unless the node holds rows of all of `columns`, or has
  // gates, which know more.
  absl::Status CheckColumns(ColumnRange columns) const;

  // Why this node's devices did not find all of `ids`.
  struct IdReport {
    absl::Status status;           // OutOfRange or FailedPrecondition, naming the first one.
    std::size_t out_of_range = 0;  // Ids that are no rows of the table.
  };
  IdReport Examine(std::span<const RowId> ids, ColumnRange columns, BoundsMode bounds) const;
  absl::Status OutOfRange(RowId id) const;
  // The error for ids with which Examine finds nothing wrong: their units are on the move.
  absl::Status RowsAreMoving() const;

  // The processor fetches this object into its cache meanwhile: for who has many tables to read.
  void Prefetch() const {
    constexpr std::size_t kLineBytes = 64;
    const auto* const bytes = reinterpret_cast<const std::byte*>(this);
    for (std::size_t at = 0; at < sizeof(*this); at += kLineBytes) __builtin_prefetch(bytes + at);
  }

  bool InTable(RowId id) const {
    return table_->id_rows.hashed() ||
           static_cast<std::uint64_t>(ToInt(id)) < static_cast<std::uint64_t>(rows());
  }

  // Maps an id to the row that stands for it where the table is cut.
  const IdRows& id_rows() const { return table_->id_rows; }

  // Whether some slice has been released.
  bool has_released() const;
  // By (column_begin, row_begin).
  OwnSlices slices(std::uint32_t device) { return OwnSlices(by_device_[device].slices); }
  // The most slices that a device has.
  std::size_t device_slices_max() const { return device_slices_max_; }
  // The hyper-parameters in force on `device`.
  const TableSpec& spec(std::uint32_t device) const { return by_device_[device].own->spec; }
  // The plan that they are from.
  PlanVersion spec_version(std::uint32_t device) const {
    return by_device_[device].own->spec_version;
  }
  // Replaces them. `spec` differs in what may change only (SameShape).
  absl::Status SetSpec(std::uint32_t device, const TableSpec& spec, PlanVersion version);
  // Tells the metrics what is on `device`.
  void CountStorage(std::uint32_t device) const;

  // On the lead device only.
  ReplicaPosition& replica_position() { return table_->replica_position; }
  // For ZCH tables only.
  StepBound& step_bound() { return table_->step_bound; }

  // Drops the records of closed sessions, which every node refuses. Lead device only.
  void ForgetSessions(const SessionSet& sessions);
  // The updates that the units without gates have applied. Lead device only.
  UnitWindows& rest() { return table_->rest; }
  // Null unless it is a ZCH table that keeps evicted rows.
  const std::shared_ptr<EvictionLog>& evictions() const { return table_->evictions; }
  TableUnits& units() { return table_->units; }
  const TableMetrics& metrics() const { return table_->metrics; }

 private:
  // State that one device's thread owns, beside the slices.
  struct OnDevice {
    OnDevice(const TableSpec& spec, PlanVersion spec_version, const TableDeviceMetrics& metrics)
        : spec(spec), spec_version(spec_version), metrics(metrics) {}
    ~OnDevice();

    TableSpec spec;
    PlanVersion spec_version{};
    const TableDeviceMetrics metrics;
  };
  // State that all layouts share.
  struct Table {
    Table(const TableSpec& spec, std::uint32_t lead, Metrics* metrics);
    ~Table();

    const TableId id;
    const std::string name;
    const std::int64_t rows;
    const std::uint32_t dim;
    const DType dtype;
    const IdRows id_rows;
    const std::uint32_t lead_device;
    Metrics* const all_metrics;  // Not owned; may be null.
    const TableMetrics metrics;
    ReplicaPosition replica_position;
    StepBound step_bound;
    UnitWindows rest;
    TableUnits units;
    const std::shared_ptr<EvictionLog> evictions;  // Its readers may outlive the table.
  };
  // Shared, not owned: by the layouts, which requests keep as long as they need them.
  struct DeviceShare {
    std::shared_ptr<OnDevice> own;
    std::vector<std::shared_ptr<OwnSlice>> slices;
  };
  struct HeldRows {
    ColumnRange columns;
    RowIntervals rows;
  };

  explicit TableShard(std::shared_ptr<Table> table) : table_(std::move(table)) {}
  std::shared_ptr<OnDevice> NewDevice(std::uint32_t device, const TableSpec& spec,
                                      PlanVersion spec_version) const;
  void AddDevice(std::uint32_t device, std::shared_ptr<OnDevice> own);
  void AddSlice(std::shared_ptr<OwnSlice> slice);
  // Describes the slices, once all are there.
  void Finish();

  const std::shared_ptr<Table> table_;
  // Constant after construction.
  std::vector<DeviceShare> by_device_;
  DeviceSet devices_;
  std::vector<Slice> slices_;
  std::size_t device_slices_max_ = 0;
  ColumnSegments segments_;
  std::vector<HeldRows> held_;
};

}  // namespace embla
