// A node with a journal, whose snapshots are taken, damaged and started from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/snapshot_files.h"
#include "server/journal/testing/journaled_node.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {

class SnapshotsTest : public ::testing::Test {
 protected:
  static constexpr TableId kTable{1};
  static constexpr NodeId kSelf{1};
  static constexpr std::uint32_t kDim = 64;
  static constexpr std::uint64_t kSegmentBytes = 1 << 18;

  void Start(std::int64_t rows);

  // Adds 1 to `count` rows from `first` on, or to those of so many ids of a ZCH table.
  absl::Status AddOne(std::int64_t first, std::int64_t count, std::uint32_t group = 0) {
    const absl::Status updated = AddOneAs(seq_, first, count, group).status();
    if (updated.ok()) ++seq_;
    return updated;
  }
  // The same as update `seq`, at about that step; of a table with steps, the first one.
  absl::StatusOr<UpdateResult> AddOneAs(std::uint64_t seq, std::int64_t first, std::int64_t count,
                                        std::uint32_t group = 0);
  // By replica group.
  std::vector<NodeRows> Rows();

  std::vector<std::string> FilesOf(std::uint64_t snapshot);
  // All files of the node.
  std::vector<std::string> Files() { return *subject_->disk().List(); }
  // 0: none was begun.
  std::uint64_t NewestSnapshot() {
    const std::vector<std::uint64_t> numbers = *SnapshotStorage::List(subject_->disk());
    return numbers.empty() ? 0 : numbers.back();
  }
  // Flips a bit in the middle of a file.
  void Damage(const std::string& file) {
    std::string content = *subject_->disk().Read(file);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
    subject_->disk().Overwrite(file, content);
  }
  void Average() {
    const auto averaged = Await<SyncResult>([&](SyncDone done) {
      subject_->node().Sync({{kTable}}, absl::InfiniteFuture(), std::move(done));
    });
    ASSERT_THAT(averaged, IsOk());
  }

  // All ids lose their rows.
  void SweepAll();
  void KillAndStart() {
    subject_->Kill();
    subject_->Start();
  }

  // Snapshot 1 without a snapshotter, and `meanwhile` before each window is read. `change` changes
  // the image.
  void TakeByHand(
      const std::function<void()>& meanwhile,
      const std::function<void(NodeImage&)>& change = [](NodeImage&) {});

  void Trim(std::uint32_t unit) {
    UnitHost& host = subject_->node().units();
    ASSERT_THAT(AwaitStatus([&](HostDone done) {
                  host.Trim({kTable, unit, 0}, std::move(done));
                }),
                IsOk());
  }
  static constexpr UnitId kUnit{kTable, 0, 0};
  static constexpr MoveId kMove{3};
  static constexpr Lsn kCut{9};

  RowRun RunOfUnit() {
    const UnitShape shape = *subject_->node().units().ShapeOf(kUnit);
    return {shape.row_begin, shape.row_end};
  }
  void Control(const LogRecord& record) {
    const absl::Status written = AwaitStatus(
        [&](HostDone done) { (void)subject_->journal().AppendControl(kUnit, record, done); });
    ASSERT_THAT(written, IsOk());
  }
  void Reserve(MoveId move, std::uint32_t device);
  void AppendChunk(Lsn version, const SharedBuffer& rows) {
    const Chunk chunk{.move = kMove, .chunk = 0, .version = version};
    ASSERT_THAT(subject_->journal().AppendChunk(kUnit, chunk, rows.bytes()), IsOk());
  }
  // Unit 0 has left, and is staged again with the rows that it had, which are returned.
  SharedBuffer StageUnit();
  std::vector<RestoredUnit> ComingUnit();
  // Unit 0, whose rows are staged when the image is taken, has arrived when they are read: it was
  // trained by then, and there is room for it on another device, too.
  void LetComeWhileASnapshotIsTaken();

  NodeSpec node_;
  JournaledNode::Options options_;
  TableSpec table_;
  PlacementRequest placement_ = {.sharding = ShardingType::kRowWise};
  std::unique_ptr<JournaledNode> subject_;
  std::uint64_t seq_ = 1;
  std::uint64_t steps_ahead_ = 0;
};

}  // namespace embla::testing
