#include "server/table/zch_ids.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "kernels/row_kernels.h"
#include "server/table/reused_vector.h"
#include "server/zch/bucket_block.h"

namespace embla {
namespace {

// Most bytes of evicted rows that readers get at once.
constexpr std::size_t kStreamedBytes = std::size_t{1} << 20;

// Maps smaller than this waste most of a huge page.
constexpr std::int64_t kHugePagesFrom = std::int64_t{16} << 20;

// TTLs are in training steps, so that they are the same in every run.
zch::Clock ClockAt(std::uint64_t step) {
  constexpr std::uint64_t kNowMax = std::numeric_limits<std::uint32_t>::max();
  return {step, static_cast<std::uint32_t>(std::min(step, kNowMax))};
}

}  // namespace

zch::SlotMapOptions IdMapOptionsOf(const TableSpec& spec, const Slice& slice) {
  const ZchSpec& zch = *spec.zch;
  zch::SlotMapOptions options;
  options.buckets = zch.buckets;
  options.capacity = spec.rows;
  options.reserved_lanes = zch.reserved_lanes;
  options.policy = zch.policy;
  options.distance_exponent = zch.distance_exponent;
  options.ttl_ticks = zch.ttl_steps;
  options.evict_unexpired = zch.evict_unexpired;
  options.admission = zch.admission;
  options.admission_count = zch.admission_count;
  options.admission_probability = zch.admission_probability;
  options.seed = spec.seed;
  options.huge_pages = slice.rows() * zch::kBytesPerSlot >= kHugePagesFrom;
  return options;
}

zch::BucketRange BucketsOf(const TableSpec& spec, const Slice& slice) {
  const std::int64_t rows = IdRows(spec).rows_per_bucket();
  return {static_cast<std::uint32_t>(slice.row_begin / rows),
          static_cast<std::uint32_t>((slice.row_end + rows - 1) / rows)};
}

ZchIds::ZchIds(const TableSpec& spec, const Slice& slice, std::unique_ptr<zch::IdMap> map,
               Metrics* metrics)
    : table_id_(spec.id),
      table_(spec.name),
      id_rows_(spec),
      unseen_(spec.zch->unseen),
      row_begin_(slice.row_begin),
      map_(std::move(map)),
      metrics_(metrics, spec.name, slice.device.index) {}

ZchIds::~ZchIds() { metrics_.CountResidents(-static_cast<double>(ResidentCount())); }

void ZchIds::AddBuckets(std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; row += id_rows_.rows_per_bucket()) {
    const auto bucket = static_cast<std::uint32_t>(row / id_rows_.rows_per_bucket());
    EMBLA_CHECK(map_->AddBucket(bucket).ok());
  }
}

std::uint64_t ZchIds::ResidentCount() const {
  std::uint64_t residents = 0;
  for (std::uint32_t b = 0; b < map_->options().buckets; ++b) residents += map_->residents(b);
  return residents;
}

absl::Status ZchIds::Find(std::span<const RowId> ids, ZchPlaces& places) {
  ResizeReused(found_, ids.size());
  ResizeReused(outcomes_, ids.size());
  ResizeReused(places.slots, ids.size());
  places.initial_at.clear();
  places.initial_of.clear();
  EMBLA_RETURN_IF_ERROR(map_->Find(ids, found_, outcomes_));
  CountChanges();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EMBLA_CHECK(outcomes_[i] != zch::Outcome::kNotHere);
    if (found_[i] != zch::kNoSlot) {
      places.slots[i] = SlotInSlice(found_[i]);
    } else {
      EMBLA_RETURN_IF_ERROR(PlaceUnseen(ids[i], i, places));
    }
  }
  return absl::OkStatus();
}

absl::Status ZchIds::PlaceUnseen(RowId id, std::size_t position, ZchPlaces& places) const {
  places.slots[position] = kernels::kNoSlot;
  if (unseen_ == zch::Unseen::kZero) return absl::OkStatus();
  if (unseen_ == zch::Unseen::kError) {
    return absl::OutOfRangeError(absl::StrCat("table ", table_, " has no row for id ", ToInt(id),
                                              ", and its unseen rule is error"));
  }
  places.initial_at.push_back(static_cast<std::uint32_t>(position));
  places.initial_of.push_back(unseen_ == zch::Unseen::kDefault ? zch::kSharedRowId : id);
  return absl::OkStatus();
}

absl::Status ZchIds::Settle(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                            ThreadPool& pool, kernels::Grouping& grouping) {
  longest_ttls_.assign(touch.ttls.empty() ? 0 : grouping.ids.size(), 0);
  for (std::size_t i = 0; i < longest_ttls_.size(); ++i) {
    for (std::uint32_t p = grouping.offsets[i]; p < grouping.offsets[i + 1]; ++p) {
      AddTtl(i, touch.ttls[grouping.positions[p]]);
    }
  }
  EMBLA_RETURN_IF_ERROR(Apply(touch, skipped, store, pool, grouping.ids));
  Regroup(grouping);
  return absl::OkStatus();
}

absl::Status ZchIds::SettleInPlace(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                                   ThreadPool& pool, const IdNumbering& numbering,
                                   std::span<std::uint32_t> slots) {
  const std::span<const std::uint32_t> number_of = numbering.number_of();
  longest_ttls_.assign(touch.ttls.empty() ? 0 : numbering.ids().size(), 0);
  for (std::size_t p = 0; p < touch.ttls.size(); ++p) AddTtl(number_of[p], touch.ttls[p]);
  EMBLA_RETURN_IF_ERROR(Apply(touch, skipped, store, pool, numbering.ids()));
  slot_of_.assign(numbering.ids().size(), kernels::kNoSlot);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (answer_.slots[i] != zch::kNoSlot) slot_of_[numbers_[i]] = SlotInSlice(answer_.slots[i]);
  }
  std::transform(number_of.begin(), number_of.end(), slots.begin(),
                 [&](std::uint32_t number) { return slot_of_[number]; });
  return absl::OkStatus();
}

absl::Status ZchIds::Apply(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                           ThreadPool& pool, std::span<const std::int64_t> ids) {
  ids_.clear();
  numbers_.clear();
  ttls_.clear();
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    const RowId id{ids[i]};
    if (!skipped.empty() && skipped.Contains(id_rows_.RowOf(id))) continue;
    ids_.push_back(id);
    numbers_.push_back(i);
    if (!longest_ttls_.empty()) ttls_.push_back(longest_ttls_[i]);
  }
  // Each id counts once, however often the update has it: clients may have summed its gradients.
  EMBLA_RETURN_IF_ERROR(
      map_->Apply({.ids = ids_,
                   .counts = {},
                   .ttls = ttls_,
                   .clock = ClockAt(touch.step),
                   .admits_all = touch.admits_all},
                  answer_, [&pool](std::size_t n, std::size_t grain, zch::RangeFunction fn) {
                    pool.ParallelFor(n, grain, fn);
                  }));
  CountChanges();
  EMBLA_RETURN_IF_ERROR(Stream(answer_.evictions, store));
  return ResetInserted(store);
}

void ZchIds::AddTtl(std::size_t number, std::uint32_t ttl) {
  const std::uint32_t ticks = ttl == 0 ? map_->options().ttl_ticks : ttl;
  longest_ttls_[number] = std::max(longest_ttls_[number], ticks);
}

absl::Status ZchIds::Stream(std::span<const zch::Eviction> evictions, const RowStore& store) const {
  if (evictions_ == nullptr || evictions.empty()) return absl::OkStatus();
  const ColumnRange columns = store.columns();
  RowBlockShape shape;
  shape.table = table_id_;
  shape.column_begin = columns.begin;
  shape.column_end = columns.end;
  shape.dtype = store.dtype();
  shape.state_floats = static_cast<std::uint32_t>(store.StateFloats(columns.size()));
  const std::size_t at_once = std::max<std::size_t>(kStreamedBytes / shape.RowBytesTotal(), 1);
  for (; !evictions.empty(); evictions = evictions.subspan(std::min(at_once, evictions.size()))) {
    const auto piece = evictions.first(std::min(at_once, evictions.size()));
    RowBlockBuilder builder(shape, static_cast<std::uint32_t>(piece.size()));
    std::vector<std::uint32_t> slots;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      builder.rows()[i] = piece[i].id;
      slots.push_back(SlotInSlice(piece[i].slot));
    }
    EMBLA_RETURN_IF_ERROR(store.ReadRows(slots, columns, {builder.weights(), builder.state()}));
    evictions_->Append({{piece.begin(), piece.end()}, builder.Finish()});
  }
  return absl::OkStatus();
}

// Rows that lost their ids are left as they are: nobody reads them, and they begin anew when an id
// gets them.
absl::StatusOr<std::size_t> ZchIds::Sweep(const ZchSweep& sweep, const RowIntervals& rows,
                                          RowStore& store) {
  std::vector<zch::Eviction> evictions;
  for (const RowInterval& interval : rows.intervals()) {
    const zch::BucketRange buckets{BucketAt(interval.begin), BucketAt(interval.end)};
    if (sweep.rule == ZchSweep::Rule::kExpired) {
      EMBLA_RETURN_IF_ERROR(map_->EvictExpired(ClockAt(sweep.step), evictions, buckets));
    } else {
      EMBLA_RETURN_IF_ERROR(map_->EvictIdle(sweep.before_step, sweep.step, evictions, buckets));
    }
  }
  CountChanges();
  EMBLA_RETURN_IF_ERROR(Stream(evictions, store));
  return evictions.size();
}

absl::StatusOr<zch::Survey> ZchIds::Survey(std::uint64_t step, const RowIntervals& rows) const {
  zch::Survey all;
  for (const RowInterval& interval : rows.intervals()) {
    EMBLA_ASSIGN_OR_RETURN(
        const zch::Survey survey,
        map_->TakeSurvey(step, {BucketAt(interval.begin), BucketAt(interval.end)}));
    all += survey;
  }
  return all;
}

// A row that was evicted has gone to an id that was inserted: no other row begins anew.
absl::Status ZchIds::ResetInserted(RowStore& store) const {
  std::vector<std::uint32_t> slots;
  std::vector<RowId> ids;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (answer_.outcomes[i] != zch::Outcome::kInserted) continue;
    slots.push_back(SlotInSlice(answer_.slots[i]));
    ids.push_back(ids_[i]);
  }
  return store.ResetRowsTo(slots, ids);
}

// Segments by row; ids that share a reserved row make one segment, in the order of arrival.
void ZchIds::Regroup(kernels::Grouping& grouping) const {
  std::vector<std::pair<std::int64_t, std::uint32_t>> segments;
  segments.reserve(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (answer_.slots[i] == zch::kNoSlot) continue;
    segments.emplace_back(static_cast<std::int64_t>(answer_.slots[i]), numbers_[i]);
  }
  std::sort(segments.begin(), segments.end());
  std::vector<std::int64_t> rows;
  std::vector<std::uint32_t> offsets = {0};
  std::vector<std::uint32_t> positions;
  positions.reserve(grouping.positions.size());
  for (const auto& [row, segment] : segments) {
    const bool shared = !rows.empty() && rows.back() == row;
    positions.insert(positions.end(), grouping.positions.begin() + grouping.offsets[segment],
                     grouping.positions.begin() + grouping.offsets[segment + 1]);
    if (shared) {
      std::sort(positions.begin() + offsets[offsets.size() - 2], positions.end());
      offsets.back() = static_cast<std::uint32_t>(positions.size());
    } else {
      rows.push_back(row);
      offsets.push_back(static_cast<std::uint32_t>(positions.size()));
    }
  }
  grouping.ids = std::move(rows);
  grouping.offsets = std::move(offsets);
  grouping.positions = std::move(positions);
}

absl::StatusOr<std::vector<std::optional<RowId>>> ZchIds::IdsAt(std::int64_t begin,
                                                                std::int64_t end) const {
  std::vector<std::optional<RowId>> ids(static_cast<std::size_t>(end - begin));
  EMBLA_RETURN_IF_ERROR(map_->IdsAt(zch::ZchSlot{begin}, ids));
  return ids;
}

absl::StatusOr<std::vector<std::uint32_t>> ZchIds::SlotsOf(std::span<const RowId> ids) const {
  std::vector<zch::ZchSlot> found(ids.size());
  EMBLA_RETURN_IF_ERROR(map_->Locate(ids, found));
  std::vector<std::uint32_t> slots;
  slots.reserve(ids.size());
  for (const zch::ZchSlot slot : found) {
    slots.push_back(slot == zch::kNoSlot ? kernels::kNoSlot : SlotInSlice(slot));
  }
  return slots;
}

absl::StatusOr<Buffer> ZchIds::ExportBucket(std::uint32_t bucket) const {
  return map_->ExportBucket(bucket);
}

absl::Status ZchIds::ReplaceBucket(std::uint32_t bucket, std::span<const std::byte> block) {
  EMBLA_ASSIGN_OR_RETURN(const zch::BucketBlock decoded, zch::DecodeBucket(map_->options(), block));
  if (decoded.bucket != bucket) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table_, ": a block of bucket ",
                                                   decoded.bucket, " is not bucket ", bucket));
  }
  RemoveBucket(bucket);
  EMBLA_RETURN_IF_ERROR(map_->ImportBucket(block));
  metrics_.CountResidents(static_cast<double>(map_->residents(bucket)));
  return absl::OkStatus();
}

void ZchIds::AddBucket(std::uint32_t bucket) {
  if (!map_->Holds(bucket)) EMBLA_CHECK(map_->AddBucket(bucket).ok());
}

void ZchIds::RemoveBucket(std::uint32_t bucket) {
  if (!map_->Holds(bucket)) return;
  metrics_.CountResidents(-static_cast<double>(map_->residents(bucket)));
  EMBLA_CHECK(map_->RemoveBucket(bucket).ok());
}

absl::StatusOr<std::vector<RowId>> ZchIds::RowsInUse(std::uint32_t bucket) const {
  const std::int64_t begin = bucket * id_rows_.rows_per_bucket();
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::optional<RowId>> ids,
                         IdsAt(begin, begin + id_rows_.rows_per_bucket()));
  const std::int64_t lanes_for_ids = map_->options().lanes_for_ids();
  std::vector<RowId> rows;
  for (std::int64_t row = begin; row < begin + id_rows_.rows_per_bucket(); ++row) {
    const bool shared = row % zch::kLanes >= lanes_for_ids;
    if (shared || ids[static_cast<std::size_t>(row - begin)].has_value())
      rows.push_back(RowId{row});
  }
  return rows;
}

void ZchIds::CountChanges() {
  const zch::Statistics now = map_->statistics();
  metrics_.Count(counted_, now);
  counted_ = now;
}

}  // namespace embla
