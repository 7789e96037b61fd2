#include "server/table/table_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/metrics/names.h"
#include "core/plan/slice_map.h"
#include "core/plan/table_options.h"

namespace embla {
namespace {

ColumnSegments SegmentsOf(const std::vector<Slice>& slices) {
  ColumnSegments segments;
  for (const ColumnCut& cut : CutColumns(slices)) {
    ColumnSegment segment{{cut.column_begin, cut.column_end}, {}};
    for (const std::uint32_t index : cut.slices) {
      segment.devices |= DeviceSet::Of(slices[index].device.index);
    }
    segments.push_back(segment);
  }
  return segments;
}

std::shared_ptr<EvictionLog> MakeEvictionLog(const TableSpec& spec, Metrics* metrics) {
  if (!spec.zch.has_value() || spec.zch->eviction_buffer_bytes == 0) return nullptr;
  return std::make_shared<EvictionLog>(spec.zch->eviction_buffer_bytes,
                                       TableSeries(metrics, spec.name));
}

}  // namespace

TableShard::Table::Table(const TableSpec& spec, std::uint32_t lead, Metrics* metrics)
    : id(spec.id),
      name(spec.name),
      rows(spec.rows),
      dim(spec.dim),
      dtype(spec.dtype),
      id_rows(spec),
      lead_device(lead),
      all_metrics(metrics),
      metrics(metrics, spec.name),
      units(spec),
      evictions(MakeEvictionLog(spec, metrics)) {}

TableShard::Table::~Table() {
  if (evictions != nullptr) evictions->Close();
}

// The device may be one that the table leaves.
TableShard::OnDevice::~OnDevice() {
  metrics.rows.Set(0);
  metrics.bytes.Set(0);
}

absl::StatusOr<std::unique_ptr<TableShard>> TableShard::Create(const TableSpec& spec,
                                                               PlanVersion spec_version,
                                                               const std::vector<Slice>& slices,
                                                               const MemoryFactory& make_memory,
                                                               Metrics* metrics) {
  EMBLA_CHECK(!slices.empty());
  std::uint32_t lead = slices.front().device.index;
  for (const Slice& slice : slices) lead = std::min(lead, slice.device.index);
  std::unique_ptr<TableShard> shard(new TableShard(std::make_shared<Table>(spec, lead, metrics)));
  for (const Slice& slice : slices) {
    EMBLA_ASSIGN_OR_RETURN(SliceMemory memory, make_memory(spec, slice));
    auto own = std::make_shared<OwnSlice>(spec, slice, std::move(memory), metrics);
    if (own->ids != nullptr) {
      own->ids->AddBuckets(slice.row_begin, slice.row_end);
      own->ids->StreamTo(shard->evictions());
    }
    own->present.Insert(own->rows());
    shard->units().CutOf(own->columns()).present.Insert(own->rows());
    const std::uint32_t device = slice.device.index;
    if (!shard->devices_.Has(device))
      shard->AddDevice(device, shard->NewDevice(device, spec, spec_version));
    shard->AddSlice(std::move(own));
  }
  shard->Finish();
  for (std::uint32_t d = 0; d < shard->by_device_.size(); ++d) {
    if (shard->devices_.Has(d)) shard->CountStorage(d);
  }
  return shard;
}

std::unique_ptr<TableShard> TableShard::CreateAround(const TableSpec& spec,
                                                     PlanVersion spec_version, std::uint32_t lead,
                                                     std::shared_ptr<OwnSlice> slice,
                                                     Metrics* metrics) {
  const TableShard empty(std::make_shared<Table>(spec, lead, metrics));
  return empty.With(std::move(slice), spec, spec_version);
}

std::unique_ptr<TableShard> TableShard::With(std::shared_ptr<OwnSlice> slice, const TableSpec& spec,
                                             PlanVersion spec_version) const {
  std::unique_ptr<TableShard> next(new TableShard(table_));
  for (std::uint32_t d = 0; d < by_device_.size(); ++d) {
    for (const std::shared_ptr<OwnSlice>& own : by_device_[d].slices) {
      if (own->released.load(std::memory_order_relaxed)) continue;
      if (!next->devices_.Has(d)) next->AddDevice(d, by_device_[d].own);
      next->AddSlice(own);
    }
  }
  const auto add_device = [&](std::uint32_t d) {
    if (next->devices_.Has(d)) return;
    next->AddDevice(d, devices_.Has(d) ? by_device_[d].own : NewDevice(d, spec, spec_version));
  };
  add_device(lead_device());
  if (slice != nullptr) {
    add_device(slice->slice.device.index);
    if (slice->ids != nullptr) slice->ids->StreamTo(table_->evictions);
    next->AddSlice(std::move(slice));
  }
  next->Finish();
  return next;
}

std::shared_ptr<TableShard::OnDevice> TableShard::NewDevice(std::uint32_t device,
                                                            const TableSpec& spec,
                                                            PlanVersion spec_version) const {
  return std::make_shared<OnDevice>(spec, spec_version,
                                    TableDeviceMetrics(table_->all_metrics, name(), device));
}

void TableShard::AddDevice(std::uint32_t device, std::shared_ptr<OnDevice> own) {
  by_device_.resize(std::max<std::size_t>(by_device_.size(), device + 1));
  by_device_[device].own = std::move(own);
  devices_ |= DeviceSet::Of(device);
}

void TableShard::AddSlice(std::shared_ptr<OwnSlice> slice) {
  by_device_[slice->slice.device.index].slices.push_back(std::move(slice));
}

void TableShard::Finish() {
  const auto before = [](const Slice& a, const Slice& b) {
    return std::pair(a.column_begin, a.row_begin) < std::pair(b.column_begin, b.row_begin);
  };
  for (DeviceShare& share : by_device_) {
    std::stable_sort(share.slices.begin(), share.slices.end(),
                     [&](const auto& a, const auto& b) { return before(a->slice, b->slice); });
    for (const std::shared_ptr<OwnSlice>& own : share.slices) slices_.push_back(own->slice);
    device_slices_max_ = std::max(device_slices_max_, share.slices.size());
  }
  std::stable_sort(slices_.begin(), slices_.end(), before);
  segments_ = SegmentsOf(slices_);
  for (const ColumnCut& cut : CutColumns(slices_)) {
    HeldRows& held = held_.emplace_back();
    held.columns = {cut.column_begin, cut.column_end};
    for (const std::uint32_t index : cut.slices) {
      held.rows.Insert({slices_[index].row_begin, slices_[index].row_end});
    }
  }
}

bool TableShard::has_released() const {
  return std::any_of(by_device_.begin(), by_device_.end(), [](const DeviceShare& share) {
    return std::any_of(share.slices.begin(), share.slices.end(), [](const auto& own) {
      return own->released.load(std::memory_order_relaxed);
    });
  });
}

void TableShard::CountStorage(std::uint32_t device) const {
  std::size_t rows = 0, bytes = 0;
  for (const std::shared_ptr<OwnSlice>& own : by_device_[device].slices) {
    for (const RowInterval& present : own->present.intervals()) {
      rows += static_cast<std::size_t>(present.end - present.begin);
    }
    if (own->store != nullptr) bytes += own->store->memory_bytes();
    if (own->ids != nullptr) bytes += own->ids->memory_bytes();
  }
  const TableDeviceMetrics& metrics = by_device_[device].own->metrics;
  metrics.rows.Set(static_cast<double>(rows));
  metrics.bytes.Set(static_cast<double>(bytes));
}

ColumnSegments TableShard::Segments(ColumnRange columns) const {
  ColumnSegments cut;
  for (const ColumnSegment& segment : segments_) {
    const ColumnRange common{std::max(columns.begin, segment.columns.begin),
                             std::min(columns.end, segment.columns.end)};
    if (common.begin < common.end) cut.push_back({common, segment.devices});
  }
  return cut;
}

void TableShard::ForgetSessions(const SessionSet& sessions) {
  rest().Forget(sessions);
  units().ForgetSessions(sessions);
}

absl::Status TableShard::CheckColumns(ColumnRange columns) const {
  if (columns.begin >= columns.end || columns.end > dim()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", name(), ": columns [", columns.begin,
                                                   ", ", columns.end, ") of ", dim()));
  }
  std::uint32_t missing = columns.begin;
  for (const ColumnSegment& segment : segments_) {
    if (segment.columns.begin > missing) break;
    missing = std::max(missing, segment.columns.end);
  }
  if (missing >= columns.end) return absl::OkStatus();
  // All units of the columns may have moved away: their gates, which the lead device asks, say
  // where to.
  if (table_->units.any_gates()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", name(), " column ", missing, " is not on this node"));
}

TableShard::IdReport TableShard::Examine(std::span<const RowId> ids, ColumnRange columns,
                                         BoundsMode bounds) const {
  IdReport report;
  for (const RowId id : ids) {
    if (!InTable(id)) {
      ++report.out_of_range;
      if (bounds == BoundsMode::kError) report.status.Update(OutOfRange(id));
      continue;
    }
    for (const HeldRows& held : held_) {
      if (!report.status.ok() || held.columns.end <= columns.begin ||
          held.columns.begin >= columns.end || held.rows.Contains(id_rows().RowOf(id))) {
        continue;
      }
      report.status = absl::FailedPreconditionError(
          absl::StrCat("table ", name(), " row ", ToInt(id), " column ",
                       std::max(held.columns.begin, columns.begin), " is not on this node"));
    }
  }
  return report;
}

absl::Status TableShard::OutOfRange(RowId id) const {
  return absl::OutOfRangeError(
      absl::StrCat("table ", name(), " has rows 0 to ", rows() - 1, ", got id ", ToInt(id)));
}

absl::Status TableShard::RowsAreMoving() const {
  return absl::FailedPreconditionError(
      absl::StrCat("rows of table ", name(), " are on their way to this node or have left it"));
}

absl::Status TableShard::SetSpec(std::uint32_t device, const TableSpec& spec, PlanVersion version) {
  OnDevice& on_device = *by_device_[device].own;
  EMBLA_CHECK(SameShape(spec, on_device.spec));
  on_device.spec_version = version;
  if (on_device.spec == spec) return absl::OkStatus();
  for (OwnSlice& own : slices(device)) {
    if (own.store == nullptr) continue;
    EMBLA_RETURN_IF_ERROR(own.store->SetOptimizer(spec.optimizer, spec.rounding));
  }
  on_device.spec = spec;
  return absl::OkStatus();
}

}  // namespace embla
