// When an image of a node may be taken while a unit comes to it: what is waited for, what is held
// back, and for how long.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/migration/unit_record.h"
#include "server/mover/testing/simulated_node.h"

namespace embla::mover_images_test {
namespace {

using testing::IsOk;
using testing::SimulatedNode;
using testing::SimulatedNodeOptions;

constexpr UnitId kUnit{TableId{1}, 0, 0};

// The target of a move, whose source is played by the test.
class MoverImagesTest : public ::testing::Test {
 protected:
  MoverImagesTest() {
    SetLogLevel(LogLevel::kError);
    Start(/*seed=*/1);
  }
  // The seed says in which order the host does what may be done in any.
  void Start(std::uint64_t seed) {
    images_.clear();
    SimulatedNodeOptions options{
        .addresses = {{NodeId{1}, "1"}, {NodeId{2}, "2"}},
        .id = NodeId{2},
        .chunks = 2,
        .seed = seed,
        .mover = {},
        .clock = &clock_,
        .send =
            [this](const std::string&, const PeerMessage& message, const MoveTransport::Done&) {
              if (std::holds_alternative<Pull>(message.body)) ++pulls_;
            },
        .report = [](const UnitReport&) {}};
    node_ = std::make_unique<SimulatedNode>(std::move(options));
    node_->Start({});
  }

  void Order(const UnitId& unit = kUnit) {
    const UnitOrder order{.unit = unit, .record = *Opened({.owner = NodeId{1}}, NodeId{2})};
    node_->mover().OnOrders(NodeId{2}, {order});
  }
  void SendChunk(std::uint32_t chunk) {
    PeerMessage message{.unit = kUnit, .from = NodeId{1}};
    message.body = Chunk{.move = MoveId{1}, .chunk = chunk, .version = Lsn{5}};
    ASSERT_THAT(node_->mover().OnMessage(std::move(message)), IsOk());
  }
  // The host has rows of the first chunk to stage.
  void BeginStaging() {
    Order();
    Settle();
    SendChunk(0);
    RunQueue();
    ASSERT_TRUE(node_->host().RunOne());  // The tracker wants them.
    RunQueue();
    ASSERT_FALSE(node_->host().is_idle());
  }
  void RunQueue() {
    while (node_->queue().RunOne()) {
    }
  }
  void Settle() {
    while (!node_->is_idle()) {
      while (node_->queue().RunOne() || node_->host().RunOne()) {
      }
      node_->log().Sync(1000);
    }
  }
  void AskForImage() {
    node_->mover().WhenLogged([this](const Mover::LoggedUnits* units) {
      if (units == nullptr) ++given_up_;
      if (units == nullptr) return;
      images_.push_back((*units)());
      chunks_logged_ = node_->log().CountStaged();
    });
    RunQueue();
  }

  ManualClock clock_{absl::FromUnixSeconds(1'000'000)};
  std::unique_ptr<SimulatedNode> node_;
  int pulls_ = 0;
  int given_up_ = 0;
  std::vector<std::vector<RestoredUnit>> images_;
  std::size_t chunks_logged_ = 0;  // When the last one was taken.
};

TEST_F(MoverImagesTest, ChunksThatAreBeingStagedAreNotWaitedFor) {
  BeginStaging();
  AskForImage();
  ASSERT_EQ(images_.size(), 1u);
  ASSERT_EQ(images_[0].size(), 1u);
  EXPECT_TRUE(images_[0][0].has_memory);
  EXPECT_EQ(images_[0][0].staged, (ChunkVersions{Lsn{0}, Lsn{0}}));
  Settle();
  AskForImage();
  ASSERT_EQ(images_.size(), 2u);
  EXPECT_EQ(images_[1][0].staged, (ChunkVersions{Lsn{5}, Lsn{0}}));
}

TEST_F(MoverImagesTest, MemoryThatIsBeingMadeIsNotWaitedFor) {
  Order();
  RunQueue();
  ASSERT_TRUE(node_->host().RunOne());  // The step for the order.
  RunQueue();
  AskForImage();
  ASSERT_EQ(images_.size(), 1u);
  EXPECT_FALSE(images_[0][0].has_memory);
}

// IMPORT finds no room in the log. Until it does, or time is up, no other step begins.
TEST_F(MoverImagesTest, StepsWaitForAnImageButNotForLong) {
  Order();
  int records = 0;
  node_->log().is_full = [&records] { return ++records > 1; };
  Settle();
  AskForImage();
  EXPECT_TRUE(images_.empty());
  clock_.Advance(MoverOptions().resend_after);  // An order that comes again too soon is nothing.
  Order();
  RunQueue();
  EXPECT_TRUE(node_->host().is_idle()) << "a step has begun";
  node_->mover().Tick();
  EXPECT_EQ(given_up_, 1);
  EXPECT_FALSE(node_->host().is_idle()) << "the step has not begun";
  node_->log().is_full = [] { return false; };
  AskForImage();
  EXPECT_TRUE(images_.empty());
  clock_.Advance(absl::Milliseconds(200));
  node_->mover().Tick();
  Settle();
  ASSERT_EQ(images_.size(), 1u);
  EXPECT_TRUE(images_[0][0].has_memory);
  EXPECT_GT(pulls_, 0);
}

// Else the step for each that is done would have to be waited for as well.
TEST_F(MoverImagesTest, ChunksThatAreStagedMeanwhileCountAfterwards) {
  for (std::uint64_t seed = 1; seed <= 16 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Start(seed);
    BeginStaging();
    Order({kUnit.table, 1, 0});
    RunQueue();
    AskForImage();
    EXPECT_TRUE(images_.empty()) << "a step is under way";
    for (int task = 0; task < 2; ++task) {  // The chunk, and the step.
      ASSERT_TRUE(node_->host().RunOne());
      RunQueue();
    }
    ASSERT_EQ(images_.size(), 1u);
    EXPECT_EQ(chunks_logged_, 0u);
    Settle();
    EXPECT_EQ(node_->log().CountStaged(), 1u);
  }
}

// The unit's own word, that it will not let go of it in a later move, waits behind the chunk.
TEST_F(MoverImagesTest, AChunkInTheLogIsInTheImage) {
  UnitRecord later = *Opened({.owner = NodeId{1}}, NodeId{2});
  later = *Opened(*HandedOver(later, later.move), NodeId{1});
  for (std::uint64_t seed = 1; seed <= 32 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Start(seed);
    BeginStaging();
    node_->mover().OnOrders(NodeId{2}, {{.unit = kUnit, .record = later, .cancels = true}});
    RunQueue();
    for (std::uint64_t task = 0; task < seed % 4; ++task) {
      node_->host().RunOne();
      RunQueue();
    }
    AskForImage();
    Settle();
    ASSERT_EQ(images_.size(), 1u);
    const ChunkVersions& staged = images_[0][0].staged;
    EXPECT_EQ(staged[0] == Lsn{5}, chunks_logged_ == 1);
  }
}

// IMPORT finds no room in the log, and is owed no more; the host has the table for a while yet.
TEST_F(MoverImagesTest, UnitsOfADroppedTableAreNotWaitedFor) {
  Order();
  int records = 0;
  node_->log().is_full = [&records] { return ++records > 1; };
  Settle();
  AskForImage();
  ASSERT_TRUE(images_.empty());
  node_->mover().KeepTables({});
  RunQueue();
  ASSERT_EQ(images_.size(), 1u);
  EXPECT_TRUE(images_[0].empty());
  node_->log().is_full = [] { return false; };
  clock_.Advance(absl::Seconds(1));
  node_->mover().Tick();
  Settle();
}

TEST_F(MoverImagesTest, OneWaitsAtATime) {
  Order();
  RunQueue();  // A step is under way.
  AskForImage();
  AskForImage();
  EXPECT_EQ(given_up_, 1);
  Settle();
  EXPECT_EQ(images_.size(), 1u);
}

}  // namespace
}  // namespace embla::mover_images_test
