// How a node answers a batch of lookups.
//
// Idea. A batch has parts, each of one table. No step partitions ids by device: every device that
// holds rows of a part scans all of its ids and takes its own, straight into the part's place in
// the one reply buffer. Parts differ only in how rows of several devices meet:
//
//   part       devices of a column cut   each device                   reply written by
//   unpooled   any number                gathers its rows              the device that has the row
//   pooled     one                       pools its bags (PoolSegment)  that device
//   pooled     several                   pools a partial sum of every  each device, for some of the
//                                        bag (PoolForReduce)           bags, after a ReduceScatter
//
// Parts that are not reduced do not depend on each other: a CPU device answers them side by side on
// its threads (server/storage/side_by_side.h).
//
// One ReduceScatter serves all parts of the batch. Devices that hold nothing of a part contribute
// zeros, since every device of the node takes part in a collective.
//
// Stages: Make() checks the batch and lays out the reply (Plan, PlaceReply); Run(device) runs once
// on each device's queue, in the same order on all of them, because devices meet in the collective;
// the last device to end calls Finish(), which checks and delivers.
//
// Frames. A long reply is sent while it is gathered. A part that streams is cut into chunks of
// rows; a chunk is sent when all devices have completed it (ReplyFrames). Reductions and int8 rows
// over cut columns write everything at the end, so they disable frames for the batch.
//
// Invariants.
// - Devices write disjoint bytes of the reply; none reads what another has written before Finish.
// - After an error a device still enters the ReduceScatter: the others wait for it.
// - Each device adds the ids times columns that it has found. If the sum is that of the part, every
//   id was found exactly once. Only otherwise does Finish look for the id that no device has
//   (CheckFound): it is out of range, or its unit is on the move.
// - An int8 row has one scale for all of its columns: where columns are cut, rows are staged in
//   fp32 and converted in Deliver. Staged bytes are charged to the request (bytes()).
// - What was gathered of a unit that has moved away is dropped: the lead device looks at the gates
//   (CheckServed).
//
// Covered by shard_node_oracle_test.cc (random batches, plans and frame sizes against plain
// arrays), unit_tables_test.cc (gates), reply_frames_test.cc.
#include "server/shard/lookup_task.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "server/shard/refused_units.h"
#include "server/storage/side_by_side.h"
#include "server/table/element.h"
#include "server/table/part_check.h"
#include "server/table/reused_vector.h"

namespace embla {
namespace {

// Pooled rows that are converted to the wire at once, at least: they stay in the second-level
// cache.
constexpr std::size_t kPooledBytes = std::size_t{256} << 10;
// Refusals in a reply.
constexpr std::size_t kRefusedMax = 1024;

// Bags [Border(rank), Border(rank + 1)) of a reduced part are summed by `rank`.
std::size_t Border(std::size_t bags, std::uint32_t rank, std::uint32_t ranks) {
  return bags * rank / ranks;
}

}  // namespace

kernels::Output LookupTask::PartWork::At(std::size_t row, std::uint32_t column) const {
  const std::size_t element = kernels::ElementBytes(out.element);
  return {static_cast<std::byte*>(out.base) + row * out.stride_bytes +
              (column - part->column_begin) * element,
          out.stride_bytes, out.element};
}

absl::StatusOr<std::unique_ptr<LookupTask>> LookupTask::Make(const NodeContext& node,
                                                             NodeTablesPtr tables,
                                                             LookupBatch batch, absl::Time deadline,
                                                             LookupFrames frames) {
  std::unique_ptr<LookupTask> task(
      new LookupTask(node, std::move(tables), std::move(batch), deadline, std::move(frames)));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  task->PlaceReply();
  return task;
}

LookupTask::LookupTask(const NodeContext& node, NodeTablesPtr tables, LookupBatch batch,
                       absl::Time deadline, LookupFrames frames)
    : RequestTask(node, deadline),
      tables_(std::move(tables)),
      batch_(std::move(batch)),
      parts_(batch_.parts.size()),
      frames_(std::move(frames)) {
  MeasureInto(batch_.device_times);
}

std::size_t LookupTask::bytes() const {
  return batch_.memory.size() + reply_bytes_ + staged_bytes_;
}

absl::Status LookupTask::Plan() {
  if (ElementBytes(batch_.wire_dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of dtype ", static_cast<int>(batch_.wire_dtype)));
  }
  // Loops of their own: what one part waits for in memory, the next ones wait for meanwhile.
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const LookupPart& part = batch_.parts[p];
    parts_[p].part = &part;
    EMBLA_ASSIGN_OR_RETURN(parts_[p].table, tables_->FindServed(part.table, batch_.plan_version));
  }
  for (PartWork& work : parts_) {
    EMBLA_ASSIGN_OR_RETURN(work.shard, work.table->ShardOf(work.part->replica_group));
    work.shard->Prefetch();
  }
  for (PartWork& work : parts_) EMBLA_RETURN_IF_ERROR(PlanPart(work));
  if (reduces_) devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
  return absl::OkStatus();
}

absl::Status LookupTask::PlanPart(PartWork& work) {
  const LookupPart& part = *work.part;
  EMBLA_RETURN_IF_ERROR(CheckPart(part));
  const ColumnRange columns{part.column_begin, part.column_end};
  EMBLA_RETURN_IF_ERROR(work.shard->CheckColumns(columns));
  work.segments = work.shard->Segments(columns);
  if (work.shard->units().any_gates()) devices_ |= DeviceSet::Of(work.shard->lead_device());
  for (const ColumnSegment& segment : work.segments) {
    devices_ |= segment.devices;
    reduces_ = reduces_ || work.Reduces(segment);
  }
  // Neither factor exceeds 2^31 and 2^13: the product fits.
  const std::size_t bytes = part.output_rows() * RowBytes(batch_.wire_dtype, part.columns());
  work.reply_offset = reply_bytes_;
  reply_bytes_ += bytes;
  if (reply_bytes_ <= node_.options.reply_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the reply would have more than ", node_.options.reply_bytes_max, " bytes: split the batch"));
}

void LookupTask::PlaceReply() {
  Buffer reply = node_.pool.Take(reply_bytes_);
  reply_data_ = reply.data();
  reply_ = std::move(reply);
  for (PartWork& work : parts_) {
    const std::uint32_t columns = work.part->columns();
    work.out = {reply_data_ + work.reply_offset, RowBytes(batch_.wire_dtype, columns),
                ElementOf(batch_.wire_dtype)};
    // An int8 row has one scale for all its columns.
    if (batch_.wire_dtype != DType::kInt8Rowwise || work.segments.size() == 1) continue;
    const std::size_t stride = columns * sizeof(float);
    work.staged = node_.pool.Take(work.part->output_rows() * stride);
    staged_bytes_ += work.staged.size();
    work.out = {work.staged.data(), stride, kernels::Element::kFloat32};
    frames_.Disable();  // Finish converts.
  }
  // A reduction writes everything at its end.
  if (reduces_ || reply_bytes_ < frames_.sent_bytes_min()) frames_.Disable();
  for (PartWork& work : parts_) CutIntoChunks(work);
  frames_.SetReply(tables_->plan->version(), reply_);
}

void LookupTask::CutIntoChunks(PartWork& work) {
  const LookupPart& part = *work.part;
  const std::size_t rows = part.output_rows();
  const std::size_t row_bytes = RowBytes(batch_.wire_dtype, part.columns());
  work.chunk_rows = std::max<std::size_t>(rows, 1);
  if (!frames_.enabled()) return;
  if (work.Streams()) {
    work.chunk_rows =
        std::clamp<std::size_t>(frames_.chunk_bytes() / row_bytes, 1, work.chunk_rows);
  }
  work.first_chunk = frames_.chunks();
  for (std::size_t begin = 0; begin < rows; begin += work.chunk_rows) {
    const std::size_t end = std::min(rows, begin + work.chunk_rows);
    // Bags are selected all at once.
    std::size_t ids = end - begin;
    if (work.pooled()) ids = begin == 0 ? part.ids.size() : 0;
    frames_.AddChunk(work.reply_offset + end * row_bytes, devices_.size(), ids * part.columns());
  }
}

void LookupTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  SetError(device, RunParts(device));
}

absl::Status LookupTask::RunParts(std::uint32_t device) {
  absl::Status status;
  for (PartWork& work : parts_) status.Update(CheckServed(work, device));
  if (reduces_) {
    status.Update(RunReduced(device));
    return status;
  }
  EMBLA_RETURN_IF_ERROR(status);
  Device& own = this->device(device);
  absl::InlinedVector<PartWork*, 8> beside;
  JobSizes ids;
  for (PartWork& work : parts_) {
    // A GPU's queue is one thread's, and so is a map of ids.
    if (own.lanes != nullptr || work.shard->id_rows().hashed()) {
      EMBLA_RETURN_IF_ERROR(RunPart(work, device));
    } else {
      beside.push_back(&work);
      ids.push_back(work.part->ids.size());
    }
  }
  return RunSideBySide(own.pool, ids,
                       [&](std::size_t part) { return RunPart(*beside[part], device); });
}

absl::Status LookupTask::RunReduced(std::uint32_t device) {
  Device& own = this->device(device);
  std::vector<std::size_t> piece_at;
  std::size_t total = 0;
  for (const std::size_t count : ReduceCounts()) {
    piece_at.push_back(total);
    total += count;
  }
  ResizeReused(own.reduce_in, total);
  absl::Status status;
  for (PartWork& work : parts_) {
    for (const ColumnSegment& segment : work.segments) {
      if (work.Reduces(segment)) {
        status.Update(PoolForReduce(work, segment, device, piece_at));
      }
    }
    status.Update(RunPart(work, device));
  }
  // With an error too: the other devices wait for this one.
  status.Update(Reduce(device));
  return status;
}

// All of the part that is not reduced.
absl::Status LookupTask::RunPart(PartWork& work, std::uint32_t device) {
  LookupScratch& scratch = LookupScratch::OfThread();
  if (!work.pooled()) return GatherPart(work, device, scratch.rows);
  std::size_t found = 0;
  for (const ColumnSegment& segment : work.segments) {
    if (work.Reduces(segment)) continue;
    EMBLA_RETURN_IF_ERROR(PoolSegment(work, segment, device, scratch, found));
  }
  if (!work.Streams() && work.part->output_rows() > 0) frames_.Complete(work.first_chunk, found);
  return absl::OkStatus();
}

// The lead device knows which units have moved away. Rows that other devices read meanwhile are
// dropped.
absl::Status LookupTask::CheckServed(PartWork& work, std::uint32_t device) const {
  TableShard& shard = *work.shard;
  if (work.table->copy != nullptr) EMBLA_RETURN_IF_ERROR(work.table->copy->CheckServes());
  if (!shard.units().any_gates()) return absl::OkStatus();
  // The first gate came while the task was on its way to its queues: the lead device, which could
  // say whether the rows are still this node's, is not asked.
  if (!devices_.Has(shard.lead_device())) return shard.RowsAreMoving();
  if (device != shard.lead_device()) return absl::OkStatus();
  return shard.units().CheckServed(work.part->ids, {work.part->column_begin, work.part->column_end},
                                   work.moved);
}

absl::Status LookupTask::GatherPart(PartWork& work, std::uint32_t device, RowSelection& selection) {
  const std::size_t rows = work.part->ids.size();
  std::size_t chunk = work.first_chunk;
  for (std::size_t begin = 0; begin < rows; begin += work.chunk_rows) {
    std::size_t found = 0;
    EMBLA_RETURN_IF_ERROR(GatherChunk(work, {begin, std::min(rows, begin + work.chunk_rows)},
                                      device, selection, found));
    work.found.fetch_add(found, std::memory_order_relaxed);
    frames_.Complete(chunk++, found);
  }
  return absl::OkStatus();
}

absl::Status LookupTask::GatherChunk(PartWork& work, RowRange rows, std::uint32_t device,
                                     RowSelection& selection, std::size_t& found) {
  if (!work.shard->devices().Has(device)) return absl::OkStatus();
  for (const OwnSlice& own : work.shard->slices(device)) {
    const ColumnRange columns{std::max(own.slice.column_begin, work.part->column_begin),
                              std::min(own.slice.column_end, work.part->column_end)};
    if (columns.begin >= columns.end) continue;
    selection.Select(work.part->ids.subspan(rows.begin, rows.size()), own);
    found += selection.found() * columns.size();
    EMBLA_RETURN_IF_ERROR(selection.Gather(columns, work.At(rows.begin, columns.begin)));
  }
  return absl::OkStatus();
}

std::span<BagSelection> LookupTask::SelectBags(PartWork& work, const ColumnSegment& segment,
                                               std::uint32_t device,
                                               std::vector<BagSelection>& selections,
                                               std::size_t& found) {
  if (!segment.devices.Has(device)) return {};
  std::size_t slices = 0, found_here = 0;
  for (const OwnSlice& own : work.shard->slices(device)) {
    if (own.slice.column_begin > segment.columns.begin ||
        own.slice.column_end < segment.columns.end) {
      continue;
    }
    if (selections.size() == slices) selections.emplace_back();
    selections[slices].Select(*work.part, own);
    found_here += selections[slices].found() * segment.columns.size();
    ++slices;
  }
  work.found.fetch_add(found_here, std::memory_order_relaxed);
  found += found_here;
  return std::span(selections).first(slices);
}

absl::Status LookupTask::PoolSegment(PartWork& work, const ColumnSegment& segment,
                                     std::uint32_t device, LookupScratch& scratch,
                                     std::size_t& found) {
  std::size_t found_here = 0;
  const std::span<BagSelection> slices =
      SelectBags(work, segment, device, scratch.bags, found_here);
  found += found_here;
  const std::size_t bags = work.part->lengths.size();
  std::size_t chunk = work.first_chunk;
  for (std::size_t begin = 0; begin < bags; begin += work.chunk_rows) {
    const RowRange rows{begin, std::min(bags, begin + work.chunk_rows)};
    if (!slices.empty()) {
      EMBLA_RETURN_IF_ERROR(PoolChunk(work, segment, rows, slices, scratch));
    }
    if (work.Streams()) frames_.Complete(chunk++, std::exchange(found_here, 0));
  }
  return absl::OkStatus();
}

absl::Status LookupTask::PoolChunk(const PartWork& work, const ColumnSegment& segment,
                                   RowRange bags, std::span<BagSelection> slices,
                                   LookupScratch& scratch) {
  const auto lengths = work.part->lengths.subspan(bags.begin, bags.size());
  const bool is_mean = work.part->pooling == Pooling::kMean;
  if (slices.size() == 1 && slices.front().PoolsToWire(bags.size())) {
    return slices.front().PoolNextToWire(is_mean ? lengths : std::span<const std::uint32_t>(),
                                         bags.size(), segment.columns,
                                         work.At(bags.begin, segment.columns.begin));
  }
  const std::size_t row_bytes = segment.columns.size() * sizeof(float);
  if (work.out.element == kernels::Element::kFloat32) {
    const kernels::Output out = work.At(bags.begin, segment.columns.begin);
    EMBLA_RETURN_IF_ERROR(PoolNext(slices, bags.size(), segment.columns, out, scratch.pooled_more));
    if (!is_mean) return absl::OkStatus();
    kernels::DivideRows({out.base, out.stride_bytes, segment.columns.size()}, lengths);
    return absl::OkStatus();
  }
  const std::size_t bytes_at_once = std::max(kPooledBytes, slices.front().piece_bytes());
  const std::size_t bags_at_once = std::max<std::size_t>(1, bytes_at_once / row_bytes);
  scratch.pooled.resize(std::min(bags.size(), bags_at_once) * segment.columns.size());
  for (std::size_t first = bags.begin; first < bags.end; first += bags_at_once) {
    const std::size_t count = std::min(bags_at_once, bags.end - first);
    EMBLA_RETURN_IF_ERROR(PoolNext(slices, count, segment.columns,
                                   {scratch.pooled.data(), row_bytes, kernels::Element::kFloat32},
                                   scratch.pooled_more));
    WriteSums(work, first, count, segment.columns, scratch.pooled.data());
  }
  return absl::OkStatus();
}

absl::Status LookupTask::PoolForReduce(PartWork& work, const ColumnSegment& segment,
                                       std::uint32_t device, std::vector<std::size_t>& piece_at) {
  Device& own = this->device(device);
  LookupScratch& scratch = LookupScratch::OfThread();
  std::size_t found = 0;  // No frames: the total is enough.
  const std::span<BagSelection> slices = SelectBags(work, segment, device, scratch.bags, found);
  const std::size_t bags = work.part->lengths.size();
  const std::uint32_t columns = segment.columns.size();
  const auto ranks = static_cast<std::uint32_t>(piece_at.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::size_t count = Border(bags, rank + 1, ranks) - Border(bags, rank, ranks);
    float* const piece = own.reduce_in.data() + piece_at[rank];
    piece_at[rank] += count * columns;
    if (slices.empty()) {
      std::fill_n(piece, count * columns, 0.0f);
      continue;
    }
    EMBLA_RETURN_IF_ERROR(PoolNext(slices, count, segment.columns,
                                   {piece, columns * sizeof(float), kernels::Element::kFloat32},
                                   scratch.pooled_more));
  }
  return absl::OkStatus();
}

std::vector<std::size_t> LookupTask::ReduceCounts() const {
  const auto ranks = static_cast<std::uint32_t>(node_.devices.size());
  std::vector<std::size_t> counts(ranks, 0);
  for (const PartWork& work : parts_) {
    const std::size_t bags = work.part->lengths.size();
    for (const ColumnSegment& segment : work.segments) {
      if (!work.Reduces(segment)) continue;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        counts[rank] +=
            (Border(bags, rank + 1, ranks) - Border(bags, rank, ranks)) * segment.columns.size();
      }
    }
  }
  return counts;
}

absl::Status LookupTask::Reduce(std::uint32_t device) {
  Device& own = this->device(device);
  const auto ranks = static_cast<std::uint32_t>(node_.devices.size());
  const std::vector<std::size_t> counts = ReduceCounts();
  ResizeReused(own.reduce_out, counts[device]);
  EMBLA_RETURN_IF_ERROR(own.communicator->ReduceScatterSum(own.reduce_in, counts, own.reduce_out));
  float* sums = own.reduce_out.data();
  for (PartWork& work : parts_) {
    const std::size_t bags = work.part->lengths.size();
    const std::size_t first = Border(bags, device, ranks);
    const std::size_t count = Border(bags, device + 1, ranks) - first;
    for (const ColumnSegment& segment : work.segments) {
      if (!work.Reduces(segment)) continue;
      WriteSums(work, first, count, segment.columns, sums);
      sums += count * segment.columns.size();
    }
  }
  return absl::OkStatus();
}

void LookupTask::WriteSums(const PartWork& work, std::size_t first_bag, std::size_t bags,
                           ColumnRange columns, float* sums) const {
  const std::size_t stride = columns.size() * sizeof(float);
  if (work.part->pooling == Pooling::kMean) {
    kernels::DivideRows({sums, stride, columns.size()},
                        work.part->lengths.subspan(first_bag, bags));
  }
  kernels::Convert({sums, stride, kernels::Element::kFloat32}, work.At(first_bag, columns.begin),
                   bags, columns.size());
}

void LookupTask::Finish() {
  absl::Status status = Outcome();
  for (PartWork& work : parts_) {
    if (status.ok()) status = CheckFound(work);
  }
  if (status.ok()) return Deliver();
  if (batch_.takes_refused && absl::IsFailedPrecondition(status)) {
    LookupResult result{.plan_version = tables_->plan->version(),
                        .rows = {},
                        .sent_bytes = frames_.sent_bytes(),
                        .refused = Refused()};
    if (!result.refused.empty()) return done_(std::move(result));
  }
  done_(std::move(status));
}

std::vector<RefusedUnit> LookupTask::Refused() const {
  std::vector<RefusedUnit> refused;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    for (const TableUnits::Moved& unit : parts_[p].moved) {
      refused.push_back(RefusedMoved(*tables_, parts_[p].table->spec.id, unit));
      refused.back().part = static_cast<std::uint32_t>(p);
    }
  }
  JoinNeighbours(refused);
  if (refused.size() > kRefusedMax) refused.resize(kRefusedMax);
  return refused;
}

absl::Status LookupTask::CheckFound(PartWork& work) {
  const LookupPart& part = *work.part;
  const TableMetrics& metrics = work.shard->metrics();
  metrics.rows_looked_up.Add(static_cast<double>(part.ids.size()));
  if (work.found.load(std::memory_order_relaxed) == part.ids.size() * part.columns()) {
    return absl::OkStatus();
  }
  const TableShard::IdReport report =
      work.shard->Examine(part.ids, {part.column_begin, part.column_end}, work.table->spec.bounds);
  metrics.ids_out_of_range.Add(static_cast<double>(report.out_of_range));
  EMBLA_RETURN_IF_ERROR(report.status);
  const std::size_t in_table = part.ids.size() - report.out_of_range;
  if (work.found.load(std::memory_order_relaxed) != in_table * part.columns()) {
    return work.shard->RowsAreMoving();
  }
  if (work.pooled()) return absl::OkStatus();
  const std::size_t row_bytes = kernels::RowBytes(work.out.element, part.columns());
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    if (work.shard->InTable(part.ids[i])) continue;
    std::memset(work.At(i, part.column_begin).base, 0, row_bytes);
  }
  return absl::OkStatus();
}

void LookupTask::Deliver() {
  for (PartWork& work : parts_) {
    if (work.staged.empty()) continue;
    const std::uint32_t columns = work.part->columns();
    kernels::Convert({work.out.base, work.out.stride_bytes, work.out.element},
                     {reply_data_ + work.reply_offset, RowBytes(batch_.wire_dtype, columns),
                      ElementOf(batch_.wire_dtype)},
                     work.part->output_rows(), columns);
  }
  batch_.memory = SharedBuffer();
  const std::size_t sent = frames_.sent_bytes();
  done_(LookupResult{.plan_version = tables_->plan->version(),
                     .rows = reply_.Part(sent, reply_.size()),
                     .sent_bytes = sent});
}

}  // namespace embla
