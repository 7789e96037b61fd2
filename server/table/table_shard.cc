#include "server/table/table_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

std::vector<ColumnSegment> SegmentsOf(const std::vector<Slice>& slices) {
  std::vector<ColumnSegment> segments;
  for (const ColumnCut& cut : CutColumns(slices)) {
    ColumnSegment segment{{cut.column_begin, cut.column_end}, {}};
    for (const std::uint32_t index : cut.slices) {
      segment.devices |= DeviceSet::Of(slices[index].device.index);
    }
    segments.push_back(segment);
  }
  return segments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableShard>> TableShard::Create(const TableSpec& spec,
                                                               PlanVersion spec_version,
                                                               std::vector<Slice> slices,
                                                               const StoreFactory& make_store,
                                                               Metrics* metrics) {
  EMBLA_CHECK(!slices.empty());
  std::unique_ptr<TableShard> shard(new TableShard(spec, spec_version, std::move(slices), metrics));
  for (const Slice& slice : shard->slices_) {
    EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<RowStore> store, make_store(spec, slice));
    shard->by_device_[slice.device.index].slices.push_back({slice, std::move(store)});
  }
  shard->CountStorage(metrics);
  return shard;
}

TableShard::TableShard(const TableSpec& spec, PlanVersion spec_version, std::vector<Slice> slices,
                       Metrics* metrics)
    : id_(spec.id),
      name_(spec.name),
      rows_(spec.rows),
      dim_(spec.dim),
      dtype_(spec.dtype),
      slices_(std::move(slices)),
      slice_map_(SliceMap::Build(slices_)),
      segments_(SegmentsOf(slices_)),
      metrics_(metrics, spec.name) {
  for (const Slice& slice : slices_) {
    devices_ |= DeviceSet::Of(slice.device.index);
    by_device_.resize(std::max<std::size_t>(by_device_.size(), slice.device.index + 1));
  }
  for (OnDevice& device : by_device_) {
    device.spec = spec;
    device.spec_version = spec_version;
  }
}

TableShard::~TableShard() {
  for (const TableDeviceMetrics& metrics : device_metrics_) {
    metrics.rows.Set(0);
    metrics.bytes.Set(0);
  }
}

void TableShard::CountStorage(Metrics* metrics) {
  for (std::uint32_t d = 0; d < by_device_.size(); ++d) {
    if (!devices_.Has(d)) continue;
    std::size_t rows = 0, bytes = 0;
    for (const OwnSlice& own : by_device_[d].slices) {
      rows += own.store->slots();
      bytes += own.store->memory_bytes();
    }
    device_metrics_.emplace_back(metrics, name_, d);
    device_metrics_.back().rows.Set(static_cast<double>(rows));
    device_metrics_.back().bytes.Set(static_cast<double>(bytes));
  }
}

std::vector<ColumnSegment> TableShard::Segments(ColumnRange columns) const {
  std::vector<ColumnSegment> cut;
  for (const ColumnSegment& segment : segments_) {
    const ColumnRange common{std::max(columns.begin, segment.columns.begin),
                             std::min(columns.end, segment.columns.end)};
    if (common.begin < common.end) cut.push_back({common, segment.devices});
  }
  return cut;
}

absl::Status TableShard::CheckColumns(ColumnRange columns) const {
  if (columns.begin >= columns.end || columns.end > dim_) {
    return absl::InvalidArgumentError(absl::StrCat("table ", name_, ": columns [", columns.begin,
                                                   ", ", columns.end, ") of ", dim_));
  }
  std::uint32_t missing = columns.begin;
  for (const ColumnSegment& segment : Segments(columns)) {
    if (segment.columns.begin != missing) break;
    missing = segment.columns.end;
  }
  if (missing == columns.end) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", name_, " column ", missing, " is not on this node"));
}

TableShard::IdReport TableShard::Examine(std::span<const RowId> ids, ColumnRange columns,
                                         BoundsMode bounds) const {
  IdReport report;
  for (const RowId id : ids) {
    if (!InTable(id)) {
      ++report.out_of_range;
      if (bounds == BoundsMode::kError && report.status.ok()) {
        report.status = absl::OutOfRangeError(
            absl::StrCat("table ", name_, " has rows 0 to ", rows_ - 1, ", got id ", ToInt(id)));
      }
      continue;
    }
    for (const SliceMap::ColumnBlock& block : slice_map_.blocks()) {
      if (!report.status.ok() || block.column_end <= columns.begin ||
          block.column_begin >= columns.end || block.OwnerOf(id) != SliceMap::kNotCovered) {
        continue;
      }
      report.status = absl::FailedPreconditionError(
          absl::StrCat("table ", name_, " row ", ToInt(id), " column ",
                       std::max(block.column_begin, columns.begin), " is not on this node"));
    }
  }
  return report;
}

absl::Status TableShard::SetSpec(std::uint32_t device, const TableSpec& spec, PlanVersion version) {
  EMBLA_CHECK(SameShape(spec, by_device_[device].spec));
  by_device_[device].spec_version = version;
  if (by_device_[device].spec == spec) return absl::OkStatus();
  for (OwnSlice& own : by_device_[device].slices) {
    EMBLA_RETURN_IF_ERROR(own.store->SetOptimizer(spec.optimizer, spec.rounding));
  }
  by_device_[device].spec = spec;
  return absl::OkStatus();
}

bool SameShape(const TableSpec& a, const TableSpec& b) {
  TableSpec same = a;
  same.optimizer = b.optimizer;
  same.rounding = b.rounding;
  same.bounds = b.bounds;
  same.nan_policy = b.nan_policy;
  same.sync_every_steps = b.sync_every_steps;
  return same == b && a.optimizer.kind == b.optimizer.kind;
}

}  // namespace embla
