// One lookup batch on its way through the devices of a node. The file lookup_task.cc begins with
// how.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/shard/node_tables.h"
#include "server/shard/reply_frames.h"
#include "server/shard/request_task.h"
#include "server/shard/shard_node.h"

namespace embla {

class LookupTask final : public RequestTask {
 public:
  // Checks the batch against `tables` and lays out the reply. Does not take `done` on error.
  static absl::StatusOr<std::unique_ptr<LookupTask>> Make(const NodeContext& node,
                                                          NodeTablesPtr tables, LookupBatch batch,
                                                          absl::Time deadline, LookupFrames frames);

  void SetCaller(LookupDone done) { done_ = std::move(done); }
  LookupDone TakeDone() { return std::move(done_); }

  // Request, reply and what is staged.
  std::size_t bytes() const;

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  // Output rows of a part.
  struct RowRange {
    std::size_t begin = 0;
    std::size_t end = 0;

    std::size_t size() const { return end - begin; }
  };
  struct PartWork {
    const LookupPart* part = nullptr;
    const NodeTable* table = nullptr;
    TableShard* shard = nullptr;  // The table of the part's replica group.
    ColumnSegments segments;
    std::size_t reply_offset = 0;  // Bytes.
    std::size_t first_chunk = 0;  // First of the part's chunks in frames_; they follow one another.
    std::size_t chunk_rows = 1;   // Output rows of each; the last may have fewer.
    // Memory that devices write: the reply, or fp32 rows to be converted when all columns are
    // there.
    kernels::Output out;
    Buffer staged;
    std::atomic<std::size_t> found = 0;  // Ids times columns. Relaxed: read in Finish.
    // Units that have moved away; the table's lead device writes them.
    std::vector<TableUnits::Moved> moved;

    bool pooled() const { return part->pooling != Pooling::kNone; }
    bool Reduces(const ColumnSegment& segment) const {
      return pooled() && segment.devices.size() > 1;
    }
    // The part's rows are written in order, chunk by chunk, by the device that has them.
    bool Streams() const { return !pooled() || (segments.size() == 1 && !Reduces(segments[0])); }
    // `out`, from a row and column of the part on.
    kernels::Output At(std::size_t row, std::uint32_t column) const;
  };

  LookupTask(const NodeContext& node, NodeTablesPtr tables, LookupBatch batch, absl::Time deadline,
             LookupFrames frames);

  absl::Status Plan();
  absl::Status PlanPart(PartWork& work);
  void PlaceReply();
  void CutIntoChunks(PartWork& work);

  absl::Status RunParts(std::uint32_t device);
  absl::Status RunReduced(std::uint32_t device);
  absl::Status CheckServed(PartWork& work, std::uint32_t device) const;
  absl::Status RunPart(PartWork& work, std::uint32_t device);
  absl::Status GatherPart(PartWork& work, std::uint32_t device, RowSelection& selection);
  // Adds to `found`, in ids times columns.
  absl::Status GatherChunk(PartWork& work, RowRange rows, std::uint32_t device,
                           RowSelection& selection, std::size_t& found);
  absl::Status PoolSegment(PartWork& work, const ColumnSegment& segment, std::uint32_t device,
                           LookupScratch& scratch, std::size_t& found);
  absl::Status PoolChunk(const PartWork& work, const ColumnSegment& segment, RowRange bags,
                         std::span<BagSelection> slices, LookupScratch& scratch);
  absl::Status PoolForReduce(PartWork& work, const ColumnSegment& segment, std::uint32_t device,
                             std::vector<std::size_t>& piece_at);
  // Selects the bags of every slice that `device` has in the segment; adds to `found`.
  std::span<BagSelection> SelectBags(PartWork& work, const ColumnSegment& segment,
                                     std::uint32_t device, std::vector<BagSelection>& selections,
                                     std::size_t& found);
  absl::Status Reduce(std::uint32_t device);
  std::vector<std::size_t> ReduceCounts() const;
  void WriteSums(const PartWork& work, std::size_t first_bag, std::size_t bags, ColumnRange columns,
                 float* sums) const;

  absl::Status CheckFound(PartWork& work);
  // Units that have moved away, as the sender is told; not more than it needs to get on.
  std::vector<RefusedUnit> Refused() const;
  void Deliver();

  const NodeTablesPtr tables_;
  LookupBatch batch_;
  LookupDone done_;

  std::vector<PartWork> parts_;
  bool reduces_ = false;
  std::size_t reply_bytes_ = 0;
  std::size_t staged_bytes_ = 0;
  SharedBuffer reply_;
  std::byte* reply_data_ = nullptr;  // Memory of reply_: devices write, each its own bytes.
  ReplyFrames frames_;
};

}  // namespace embla
