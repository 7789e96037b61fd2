#include "server/mover/chunk_sender.h"

#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/mover/testing/fake_unit_host.h"

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The other end takes everything in at once, or nothing.
class TakesAtOnce final : public MoveTransport {
 public:
  void Send(const std::string&, PeerMessage message, Done done) override {
    versions.push_back(ToInt(std::get<Chunk>(message.body).version));
    done(answer);
  }
  absl::Status answer;
  std::vector<std::uint64_t> versions;  // Versions sent.
};

class ChunkSenderTest : public ::testing::Test {
 protected:
  ChunkSenderTest() { host_.Place(kUnit); }

  void Add(std::uint32_t chunk, std::uint64_t version, bool is_urgent = false) {
    sender_.Add({.unit = kUnit,
                 .to_address = "b",
                 .chunk = {.move = MoveId{1}, .chunk = chunk, .version = Lsn{version}},
                 .is_urgent = is_urgent});
  }
  // Returns the chunks that are sent without time passing.
  std::vector<std::uint64_t> Run() {
    transport_.versions.clear();
    sender_.Pump();
    while (host_.RunOne() || queue_->RunOne()) {
    }
    return transport_.versions;
  }

  static constexpr UnitId kUnit{TableId{1}, 0, 0};
  static constexpr std::uint32_t kChunks = 100;
  ManualClock clock_{absl::FromUnixSeconds(1000)};
  testing::FakeUnitHost host_{kChunks, 1};
  TakesAtOnce transport_;
  const std::shared_ptr<TaskQueue> queue_ = std::make_shared<TaskQueue>();
  const ChunkSenderOptions options_;
  int lost_ = 0;  // Chunks that the other end did not take in.
  ChunkSender sender_{options_,
                      host_,
                      transport_,
                      clock_,
                      queue_,
                      [](const SentChunk&) {},
                      [this](const UnitId&, const absl::Status&) { ++lost_; },
                      Counter()};
};

TEST_F(ChunkSenderTest, AChunkThatWaitsGoesOnceAtItsNewestVersion) {
  Add(0, 1);
  Add(1, 3);
  Add(0, 2);
  EXPECT_THAT(Run(), ElementsAre(2, 3));
}

TEST_F(ChunkSenderTest, WhatIsUrgentGoesFirstAlsoIfItWaitedBefore) {
  Add(0, 1);
  Add(1, 2);
  Add(2, 3, /*is_urgent=*/true);
  Add(1, 4, /*is_urgent=*/true);
  EXPECT_THAT(Run(), ElementsAre(3, 4, 1));
}

TEST_F(ChunkSenderTest, WhatWaitsOfAFrozenUnitIsUrgent) {
  constexpr UnitId kOther{TableId{1}, 1, 0};
  host_.Place(kOther);
  Add(0, 1);
  sender_.Add({.unit = kOther, .to_address = "b", .chunk = {.move = MoveId{1}, .version = Lsn{2}}});
  sender_.Urge(kOther);
  EXPECT_THAT(Run(), ElementsAre(2, 1));
}

TEST_F(ChunkSenderTest, SaysWhatWasLostOnce) {
  Add(0, 1);
  Add(1, 2);
  EXPECT_THAT(Run(), ElementsAre(1, 2));
  EXPECT_EQ(lost_, 0);
  transport_.answer = absl::UnavailableError("gone");
  Add(2, 3);
  EXPECT_THAT(Run(), ElementsAre(3));
  EXPECT_EQ(lost_, 1);
}

TEST_F(ChunkSenderTest, GivesWayToRequestsThatWait) {
  host_.faults.request_delay = absl::Milliseconds(1);
  EXPECT_THAT(Run(), IsEmpty());  // Only what is usual at rest.
  clock_.Advance(options_.pace.look_every);
  host_.faults.request_delay = absl::Milliseconds(50);
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) Add(chunk, 1);
  std::size_t sent = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    sent += Run().size();
    clock_.Advance(absl::Milliseconds(1));
  }
  EXPECT_LT(sent, 70u);
  EXPECT_GT(sent, 45u);
  host_.faults.request_delay = absl::ZeroDuration();
  clock_.Advance(options_.pace.look_every);
  EXPECT_THAT(Run(), ::testing::SizeIs(kChunks - sent));
  EXPECT_THAT(Run(), IsEmpty());
}

}  // namespace
}  // namespace embla
