// 10^5 damaged requests: decoding may refuse them, but never crashes, reads past the message or
// lets through a batch whose numbers do not fit together. Also built as a libFuzzer target.
#include <gtest/gtest.h>

#include <string>

#include "core/wire/random_request.h"
#include "core/wire/request_invariants.h"

namespace embla::wire {
namespace {

constexpr std::uint64_t kSeed = 4242;
constexpr int kRounds = 34'000;  // Three kinds of request each.

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

}  // namespace
}  // namespace embla::wire
