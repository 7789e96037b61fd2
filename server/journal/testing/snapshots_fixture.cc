#include "server/journal/testing/snapshots_fixture.h"

#include <utility>

#include "server/journal/testing/slow_snapshot.h"

namespace embla::testing {

void SnapshotsTest::Start(std::int64_t rows) {
  node_.id = kSelf;
  node_.name = "n0";
  node_.address = "127.0.0.1:1";
  node_.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
  options_.node.name = node_.name;
  options_.node.devices = node_.devices;
  options_.journal.log.segment_bytes_max = kSegmentBytes;
  table_.id = kTable;
  table_.name = "t";
  table_.rows = rows;
  table_.dim = kDim;
  table_.row_granules = table_.zch.has_value() ? table_.zch->buckets : 8;
  table_.optimizer.kind = OptimizerKind::kSgd;
  table_.optimizer.learning_rate = 1.0f;
  table_.SetDefaults();
  absl::StatusOr<TablePlan> table = PlaceTable(table_, placement_, {node_}, {});
  ASSERT_THAT(table, IsOk());
  if (table_.sync.has_value()) {
    table->steps = {.version = PlanVersion{1}, .members = {{.ranks = {Rank{0}}}}};
  }
  subject_ = std::make_unique<JournaledNode>(options_);
  const absl::Status installed = subject_->node().InstallPlan(
      std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{node_}, std::vector{*table}),
      kSelf);
  ASSERT_THAT(installed, IsOk());
}

absl::StatusOr<UpdateResult> SnapshotsTest::AddOneAs(std::uint64_t seq, std::int64_t first,
                                                     std::int64_t count, std::uint32_t group) {
  UpdatePartData data;
  data.part.table = kTable;
  data.part.replica_group = group;
  data.part.clipped = table_.sync.has_value();
  data.part.column_end = kDim;
  const std::int64_t ids = table_.zch.has_value() ? 1000 : table_.rows;
  for (std::int64_t i = 0; i < count; ++i) data.ids.push_back(RowId{(first + i) % ids});
  data.gradients =
      EncodeRows(std::vector<float>(data.ids.size() * kDim, -1.0f), kDim, DType::kFloat32);
  UpdateBatch header;
  header.session = SessionId{1};
  header.seq = header.first_incomplete = UpdateSeq{seq};
  header.step = seq + steps_ahead_;
  if (table_.sync.has_value()) {
    header.step = 0;
    header.claim = StepClaim{.table = kTable, .rank = Rank{0}, .resumes = false, .units = {}};
    header.claim->units = UnitSet({0, 0, table_.row_granules});
  }
  UpdateBatch request = Pack(header, {data});
  return Await<UpdateResult>([&](UpdateDone done) {
    subject_->node().Update(std::move(request), absl::InfiniteFuture(), std::move(done));
  });
}

std::vector<NodeRows> SnapshotsTest::Rows() {
  std::vector<NodeRows> rows;
  for (std::uint32_t group = 0; group < table_.replica_groups; ++group) {
    rows.push_back(*ReadNodeRows(subject_->node(), table_, group));
  }
  return rows;
}

std::vector<std::string> SnapshotsTest::FilesOf(std::uint64_t snapshot) {
  const std::string prefix = "snapshot-0000000000000000000" + std::to_string(snapshot) + "-";
  std::vector<std::string> files = *subject_->disk().List();
  std::erase_if(files, [&](const std::string& name) { return !name.starts_with(prefix); });
  return files;
}

void SnapshotsTest::SweepAll() {
  ShardNode::SweepQuery query;
  query.table = kTable;
  query.sweep = {ZchSweep::Rule::kIdle, seq_, seq_};
  query.rows = {{0, table_.rows}};
  const auto swept = Await<SweepResult>([&](SweepDone done) {
    subject_->node().SweepTable(query, absl::InfiniteFuture(), std::move(done));
  });
  ASSERT_THAT(swept, IsOk());
}

void SnapshotsTest::TakeByHand(const std::function<void()>& meanwhile,
                               const std::function<void(NodeImage&)>& change) {
  NodeImages& images = subject_->node().images();
  absl::StatusOr<NodeImages::Taken> taken = images.Take([] { return absl::OkStatus(); });
  ASSERT_THAT(taken, IsOk());
  SnapshotHead head;
  head.record = {.number = 1,
                 .base = 1,
                 .position = taken->image.position,
                 .log_process = subject_->journal().recovery().node.log_process,
                 .time = taken->image.time,
                 .sessions = taken->image.sessions};
  head.image = std::move(taken->image);
  change(head.image);
  auto writer = SnapshotWriter::Begin(subject_->disk(), kSegmentBytes, head);
  ASSERT_THAT(writer, IsOk());
  for (const RowWindow& window : taken->windows) {
    meanwhile();
    const auto read = Await<WindowRead>(
        [&](auto done) { images.Read(window, /*changed_only=*/false, std::move(done)); });
    ASSERT_THAT(read, IsOk());
    for (const WindowRows& on_device : read->rows) {
      ASSERT_THAT((*writer)->Add(window, on_device), IsOk());
    }
  }
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

void SnapshotsTest::Reserve(MoveId move, std::uint32_t device) {
  const RowRun run = RunOfUnit();
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                subject_->node().units().Reserve(kUnit, device, run, std::move(done));
              }),
              IsOk());
  ASSERT_THAT(subject_->journal().AppendReserved(kUnit, device, run), IsOk());
  Control(ImportRecord{move, NodeId{2}, {}});
}

SharedBuffer SnapshotsTest::StageUnit() {
  UnitHost& host = subject_->node().units();
  auto read = Await<Buffer>([&](auto done) { host.ReadChunk(kUnit, 0, {}, std::move(done)); });
  EXPECT_THAT(read, IsOk());
  SharedBuffer rows(*std::move(read));
  Trim(0);
  Reserve(kMove, /*device=*/0);
  EXPECT_THAT(AwaitStatus([&](HostDone done) { host.Stage(kUnit, 0, rows, {}, std::move(done)); }),
              IsOk());
  AppendChunk(kCut, rows);
  return rows;
}

std::vector<RestoredUnit> SnapshotsTest::ComingUnit() {
  RestoredUnit coming{
      .unit = kUnit, .durable = {}, .staged = {kCut}, .has_memory = true, .run = RunOfUnit()};
  coming.durable.touched = {Lsn{0}};
  coming.durable.import = ImportState{kMove, NodeId{2}, {}};
  return {coming};
}

void SnapshotsTest::LetComeWhileASnapshotIsTaken() {
  ASSERT_THAT(AddOne(0, 600), IsOk());
  StageUnit();
  SlowSnapshot slow;
  slow.Begin(subject_->journal(), [&] { return ComingUnit(); });
  Control(OwnRecord{UnitEpoch{2}, kMove, kCut, {}});
  const auto gate = std::make_shared<ScriptedGate>(UnitWindows(), UnitEpoch{2});
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                subject_->node().units().Install(kUnit, gate, std::move(done));
              }),
              IsOk());
  ASSERT_THAT(AddOne(0, 300), IsOk());
  if (table_.replica_groups == 1) Reserve(Next(kMove), /*device=*/1);
  ASSERT_THAT(slow.Finish(), IsOk());
  const std::vector<NodeRows> expected = Rows();
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 1u);
  EXPECT_TRUE(Rows() == expected);
}

}  // namespace embla::testing
