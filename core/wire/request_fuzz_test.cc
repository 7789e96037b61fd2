// 10^5 damaged requests, as messages and as frames: decoding may refuse them, but never crashes,
// reads past the message or lets through a batch whose numbers do not fit together. Also built as a
// libFuzzer target.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/wire/random_request.h"
#include "core/wire/request_invariants.h"

namespace embla::wire::request_fuzz_test {
namespace {

using ::embla::testing::IsOk;

constexpr std::uint64_t kSeed = 4242;
constexpr int kRounds = 34'000;       // Three kinds of request each.
constexpr int kFrameRounds = 10'000;  // Up to four frames each.

TEST(RequestCodecFuzz, DamagedRequestsAreRefusedOrConsistent) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string lookup = random.Lookup().SerializeAsString();
    std::string update = random.Update().SerializeAsString();
    std::string stream = random.Stream().SerializeAsString();
    for (std::string* bytes : {&lookup, &update, &stream}) random.Mutate(*bytes);
    for (const std::string& bytes : {lookup, update, stream}) {
      accepted += DecodeEveryWay(random.Cut(bytes), pool);
    }
  }
  // Mutations that only change ids or gradients leave requests valid: the walk goes deep.
  EXPECT_GT(accepted, kRounds / 10);
}

TEST(RequestCodecFuzz, DamagedFramesAreRefusedOrConsistent) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  int accepted = 0;
  for (int round = 0; round < kFrameRounds; ++round) {
    std::string bytes;
    for (std::uint64_t frames = 1 + random.Below(4); frames > 0; --frames) {
      bytes += BytesOf(MakeFrame(SplitOf(random.Stream())));
    }
    random.Mutate(bytes);
    accepted += DecodeEveryWay(random.Cut(bytes), pool);
  }
  EXPECT_GT(accepted, kFrameRounds / 5);
}

// Only the texts are damaged: the frames are whole.
TEST(RequestCodecFuzz, DamagedTextsAreRefusedOrConsistent) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  int accepted = 0;
  for (int round = 0; round < kFrameRounds; ++round) {
    SplitMessage message = SplitOf(random.Stream());
    random.Mutate(random.Chance(30) ? message.envelope : message.small);
    accepted += DecodeEveryWay(random.Cut(BytesOf(MakeFrame(message))), pool);
  }
  EXPECT_GT(accepted, kFrameRounds / 20);
}

TEST(RequestCodecFuzz, FramesThatAreNotDamagedAreAccepted) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  for (int round = 0; round < 1000; ++round) {
    const std::string bytes = BytesOf(MakeFrame(SplitOf(random.Stream())));
    const std::vector<StreamRequest> requests =
        DecodeFrames(random.Cut(bytes), pool, SmallLimits());
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_THAT(requests[0].call, IsOk());
  }
}

}  // namespace
}  // namespace embla::wire::request_fuzz_test
