// Two nodes with movers, disks and snapshots, between which all units of a table move, and within
// which they change devices, without an end, while the plan says that nothing ever moved; a trainer
// trains all the time and nodes die. No unit is ever at rest for long: their directories stay as
// small as the tables all the same, and in the end every row is there once, bit for bit that of a
// training without moves.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/snapshot_files.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/lone_node.h"
#include "server/migration/coordinator_step.h"
#include "server/mover/mover_thread.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"

namespace embla::testing::moving_snapshots_test {
namespace {

constexpr TableId kTable{1};
constexpr std::size_t kNodes = 2;
constexpr std::uint32_t kUnits = 4;
constexpr std::uint32_t kDim = 512;
constexpr std::int64_t kRows = 2048;
constexpr std::uint64_t kTableBytes = kRows * kDim * sizeof(float);
constexpr std::uint64_t kSegmentBytes = 1 << 20;
constexpr std::int64_t kRowsOfUpdate = 192;
constexpr PlanVersion kPlan{1};

UnitId IdOf(std::uint32_t unit) { return {kTable, unit, 0}; }

// Carries messages of movers, which are lost while the other end is down, and reports, which wait
// for the coordinator.
class Network {
 public:
  // Null: the node is down.
  void SetMover(NodeId node, Mover* mover) {
    const MutexLock lock(mu_);
    movers_[node] = mover;
  }
  absl::Status Carry(NodeId to, PeerMessage message) {
    const MutexLock lock(mu_);
    Mover* const mover = movers_[to];
    return mover == nullptr ? absl::UnavailableError("down") : mover->OnMessage(std::move(message));
  }
  void Tell(NodeId to, const UnitOrder& order) {
    const MutexLock lock(mu_);
    if (Mover* const mover = movers_[to]; mover != nullptr) mover->OnOrders(to, {order});
  }
  void Report(NodeId from, std::vector<UnitReport> reports) {
    const MutexLock lock(mu_);
    for (UnitReport& report : reports) reports_.emplace_back(from, std::move(report));
    reported_.NotifyAll();
  }
  // Returns the reports that have come; after a while, none.
  std::deque<std::pair<NodeId, UnitReport>> TakeReports() {
    const MutexLock lock(mu_);
    if (reports_.empty()) reported_.WaitFor(mu_, absl::Milliseconds(20));
    return std::exchange(reports_, {});
  }

 private:
  Mutex mu_;
  CondVar reported_;
  std::map<NodeId, Mover*> movers_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<NodeId, UnitReport>> reports_ ABSL_GUARDED_BY(mu_);
};

// A node's way to the network; its address is its id.
class NodeEnds final : public MoveTransport, public MoveControl {
 public:
  NodeEnds(Network& network, NodeId self) : network_(network), self_(self) {}
  void Send(const std::string& address, PeerMessage message, Done done) override {
    done(network_.Carry(NodeId{static_cast<std::uint32_t>(std::stoul(address))},
                        std::move(message)));
  }
  void Report(std::vector<UnitReport> reports) override {
    network_.Report(self_, std::move(reports));
  }

 private:
  Network& network_;  // Not owned; outlives this object.
  const NodeId self_;
};

// Opens the next move of each unit as soon as the last one is over, until it is told to stop.
class Coordinator {
 public:
  Coordinator(Network& network, const std::vector<NodeId>& owners) : network_(network) {
    for (const NodeId owner : owners) units_.push_back({.stored = {.owner = owner}});
    thread_ = std::thread([this] { Run(); });
  }
  ~Coordinator() {
    ends_ = true;
    thread_.join();
  }
  void StopMoves() { has_moves_ = false; }
  std::uint64_t moves() const { return moves_; }
  std::uint64_t open() const { return open_; }

 private:
  struct Unit {
    UnitRecord stored;
    CoordinatedUnit coordinated = {};
  };

  void Run() {
    while (!ends_) {
      for (const auto& [from, report] : network_.TakeReports()) OnReport(from, report);
      std::uint64_t open = 0;
      for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
        Coordinate(unit, CoordinatorTick{});
        const UnitRecord& record = units_[unit].stored;
        if (record.phase != MovePhase::kOpen && has_moves_) {
          // Each third move is one within the node.
          const NodeId other{3 - ToInt(record.owner)};
          Coordinate(unit, StartMove{ToInt(record.move) % 3 == 2 ? record.owner : other});
          ++moves_;
        }
        open += record.phase == MovePhase::kOpen ? 1 : 0;
      }
      open_ = open;
    }
  }
  void OnReport(NodeId from, const UnitReport& report) {
    const std::uint32_t unit = report.unit.row_granule;
    const auto said = [&](ReportKind kind) { Coordinate(unit, ReportEvent{{kind, report.move}}); };
    if (report.kind == UnitReport::Kind::kHandedOver) said(ReportKind::kHandedOver);
    if (report.kind == UnitReport::Kind::kRefused) said(ReportKind::kRefused);
    if (report.kind == UnitReport::Kind::kAborted) said(ReportKind::kAborted);
    if (report.kind == UnitReport::Kind::kReadRecord) Tell(from, unit, units_[unit].stored, false);
  }
  void Coordinate(std::uint32_t unit, const CoordinatorEvent& event) {
    CoordinatorStep step = StepCoordinator(units_[unit].coordinated, event);
    units_[unit].coordinated = step.state;
    for (const CoordinatorAction& action : step.actions) {
      if (const auto* const put = std::get_if<PutToStore>(&action)) {
        if (units_[unit].stored == put->expected) units_[unit].stored = put->desired;
      }
      if (const auto* const tell = std::get_if<TellRecord>(&action)) {
        Tell(tell->to, unit, tell->record, false);
      } else if (const auto* const cancel = std::get_if<TellCancel>(&action)) {
        Tell(cancel->to, unit, cancel->record, true);
      } else {
        Coordinate(unit, StoredRecord{units_[unit].stored});
      }
    }
  }
  void Tell(NodeId to, std::uint32_t unit, const UnitRecord& record, bool cancels) {
    constexpr std::int64_t kRowsOfUnit = kRows / kUnits;
    network_.Tell(to, {.unit = IdOf(unit),
                       .record = record,
                       .cancels = cancels,
                       .target_device = static_cast<std::uint32_t>(ToInt(record.move) % 2),
                       .run = {unit * kRowsOfUnit, (unit + 1) * kRowsOfUnit},
                       .bytes_per_second = 8 << 20});
  }

  Network& network_;  // Not owned; outlives this object.
  std::vector<Unit> units_;
  std::atomic<bool> has_moves_ = true;
  std::atomic<bool> ends_ = false;
  std::atomic<std::uint64_t> moves_ = 0;
  std::atomic<std::uint64_t> open_ = 0;
  std::thread thread_;
};

class MovingSnapshotsTest : public ::testing::Test {
 protected:
  struct Node {
    std::unique_ptr<JournaledNode> journaled;
    std::unique_ptr<NodeEnds> ends;
    std::unique_ptr<MoverThread> mover;
  };

  MovingSnapshotsTest() {
    table_.id = kTable;
    table_.name = "t";
    table_.rows = kRows;
    table_.dim = kDim;
    table_.row_granules = kUnits;
    table_.optimizer.kind = OptimizerKind::kSgd;
    table_.SetDefaults();
    for (std::uint32_t n = 1; n <= kNodes; ++n) {
      NodeSpec& spec = specs_.emplace_back();
      spec.id = NodeId{n};
      spec.name = absl::StrCat("n", n);
      spec.address = absl::StrCat("127.0.0.1:", n);
      spec.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
    }
    absl::StatusOr<TablePlan> table =
        PlaceTable(table_, {.sharding = ShardingType::kRowWise}, specs_, {});
    EMBLA_CHECK(table.ok());
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      const std::int64_t row = table_.RowGranuleBegin(unit);
      const auto slice = std::ranges::find_if(table->primary(), [row](const Slice& s) {
        return s.row_begin <= row && row < s.row_end;
      });
      owners_.push_back(slice->device.node);
    }
    const auto plan = std::make_shared<const Plan>(kPlan, "test", specs_, std::vector{*table});
    for (const NodeSpec& spec : specs_) {
      JournaledNode::Options options;
      options.node.name = spec.name;
      options.node.devices = spec.devices;
      options.journal.log.segment_bytes_max = kSegmentBytes;
      options.journal.snapshots.journal_bytes_min = kSegmentBytes;
      options.journal.snapshots.growth_limit_bytes_min = kSegmentBytes;
      options.journal.snapshots.look_every = absl::Milliseconds(1);
      options.journal.snapshots.retry_after = absl::Milliseconds(20);
      Node& node = nodes_.emplace_back();
      node.journaled = std::make_unique<JournaledNode>(options);
      node.ends = std::make_unique<NodeEnds>(network_, spec.id);
      EMBLA_CHECK(node.journaled->node().InstallPlan(plan, spec.id).ok());
    }
    model_ = MakeLoneNode(table_, specs_[0], pool_);
    for (std::size_t n = 0; n < kNodes; ++n) Start(n);
  }
  ~MovingSnapshotsTest() override {
    for (std::size_t n = 0; n < kNodes; ++n) Stop(n);
  }

  void Start(std::size_t n) {
    Node& node = nodes_[n];
    NodeJournal& journal = node.journaled->journal();
    node.mover = std::make_unique<MoverThread>(
        MoverOptions{},
        MoverParts{node.journaled->node().units(), *node.ends, *node.ends, journal, Clock::Real()},
        nullptr);
    Mover& mover = node.mover->mover();
    mover.Restore(journal.recovery().node);
    mover.OnPlan(kPlan, {{NodeId{1}, "1"}, {NodeId{2}, "2"}});
    // It orders its moves by the id of the node that it speaks to.
    mover.OnOrders(specs_[n].id, {});
    journal.StartSnapshots([&mover](const auto& work) { return mover.WhileLogged(work); });
    network_.SetMover(specs_[n].id, &mover);
  }
  void Stop(std::size_t n) {
    network_.SetMover(specs_[n].id, nullptr);
    nodes_[n].journaled->journal().StopSnapshots();
    nodes_[n].mover.reset();
  }
  void Kill(std::size_t n) {
    Stop(n);
    nodes_[n].journaled->Kill();
    nodes_[n].journaled->Start();
    Start(n);
  }

  absl::StatusOr<UpdateResult> Send(ShardNode& node, std::uint64_t seq,
                                    const std::vector<std::int64_t>& rows) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    for (const std::int64_t row : rows) data.ids.push_back(RowId{row});
    data.gradients =
        EncodeRows(std::vector<float>(rows.size() * kDim, -0.25f), kDim, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = header.first_incomplete = UpdateSeq{seq};
    header.step = seq;
    header.routed_since = kPlan;
    UpdateBatch request = Pack(header, {data});
    return Await<UpdateResult>([&](UpdateDone done) {
      node.Update(std::move(request), absl::InfiniteFuture(), std::move(done));
    });
  }
  // To both nodes, until every row has found its owner.
  void Train(std::uint64_t seq) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < kRowsOfUpdate; ++i) {
      rows.push_back((static_cast<std::int64_t>(seq) * 7 * kRowsOfUpdate + i * 5) % kRows);
    }
    std::ranges::sort(rows);
    ASSERT_THAT(Send(*model_, seq, rows), IsOk());
    AwaitFor(
        [&] {
          for (Node& node : nodes_) {
            if (rows.empty()) break;
            const auto result = Send(node.journaled->node(), seq, rows);
            if (!result.ok()) continue;  // Nothing of them is there, or the journal waits.
            std::erase_if(rows, [&](std::int64_t row) {
              return std::ranges::none_of(result->refused, [row](const RefusedUnit& unit) {
                return unit.row_begin <= row && row < unit.row_end;
              });
            });
          }
          return rows.empty();
        },
        absl::Seconds(60), "an update finds the owners of its rows");
  }

  // 0: none was begun.
  std::uint64_t NewestSnapshot(std::size_t n) {
    const std::vector<std::uint64_t> numbers = *SnapshotStorage::List(nodes_[n].journaled->disk());
    return numbers.empty() ? 0 : numbers.back();
  }
  // None, if some are on both nodes.
  NodeRows AllRows() {
    NodeRows all;
    for (Node& node : nodes_) {
      absl::StatusOr<NodeRows> rows = ReadNodeRows(node.journaled->node(), table_, 0);
      if (rows.ok()) all.merge(*rows);
      if (rows.ok() && !rows->empty()) return {};
    }
    return all;
  }

  TableSpec table_;
  std::vector<NodeSpec> specs_;
  std::vector<NodeId> owners_;
  Network network_;
  std::vector<Node> nodes_;
  BufferPool pool_;
  std::unique_ptr<ShardNode> model_;
};

TEST_F(MovingSnapshotsTest, ADirectoryStaysSmallWhileUnitsMoveWithoutAnEnd) {
  constexpr int kUpdates = 400;  // Worth forty times the table.
  Coordinator coordinator(network_, owners_);
  std::uint64_t most = 0;
  for (int update = 1; update <= kUpdates && !HasFailure(); ++update) {
    Train(static_cast<std::uint64_t>(update));
    if (update % 40 == 0) Kill(update / 40 % kNodes);
    for (const Node& node : nodes_) most = std::max(most, node.journaled->disk().bytes());
  }
  EXPECT_LE(most, 4 * kTableBytes + 8 * kSegmentBytes);
  for (std::size_t n = 0; n < kNodes; ++n) EXPECT_GT(NewestSnapshot(n), 10u);
  EXPECT_GT(coordinator.moves(), kUnits);
  coordinator.StopMoves();
  AwaitFor([&] { return coordinator.open() == 0; }, absl::Seconds(60), "all moves are over");
  const NodeRows expected = *ReadNodeRows(*model_, table_, 0);
  AwaitFor([&] { return AllRows() == expected; }, absl::Seconds(60), "all rows are there once");
}

}  // namespace
}  // namespace embla::testing::moving_snapshots_test
