#include "server/coordinator/freeze_batches.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const absl::Time kNow = absl::FromUnixSeconds(1000);
const FreezeBatchOptions kOptions = {.linger = absl::Milliseconds(100),
                                     .units_max = 4,
                                     .bytes_max = 6 * kMiB,
                                     .unit_bytes_max = 2 * kMiB};

std::vector<FreezeBatches::Waiting> Units(std::uint32_t count, std::int64_t bytes,
                                          absl::Time since = kNow) {
  std::vector<FreezeBatches::Waiting> waiting;
  for (std::uint32_t i = 0; i < count; ++i) {
    waiting.push_back({.unit = {TableId{1}, i, 0}, .since = since, .bytes = bytes});
  }
  return waiting;
}

TEST(FreezeBatchesNext, UnitsWaitForOthersThatComeButNoLongerThanTheLinger) {
  FreezeBatches batches(kOptions);
  EXPECT_THAT(batches.Next(Units(2, 1), {}, true, kNow), IsEmpty());
  EXPECT_THAT(batches.Next(Units(2, 1), {}, true, kNow + absl::Milliseconds(99)), IsEmpty());
  EXPECT_THAT(batches.Next(Units(2, 1), {}, true, kNow + absl::Milliseconds(100)), SizeIs(2));
}

TEST(FreezeBatchesNext, TheLastUnitsDoNotWait) {
  FreezeBatches batches(kOptions);
  EXPECT_THAT(batches.Next(Units(2, 1), {}, false, kNow), SizeIs(2));
}

TEST(FreezeBatchesNext, AFullBatchDoesNotWait) {
  FreezeBatches batches(kOptions);
  EXPECT_THAT(batches.Next(Units(3, 1), {}, true, kNow), IsEmpty());
  EXPECT_THAT(batches.Next(Units(5, 1), {}, true, kNow), SizeIs(4));
}

TEST(FreezeBatchesNext, BytesThatAreLeftToSendFillABatchToo) {
  FreezeBatches batches(kOptions);
  EXPECT_EQ(batches.LeftBytes(100 * kMiB), 2 * kMiB);
  EXPECT_THAT(batches.Next(Units(2, 100 * kMiB), {}, true, kNow), IsEmpty());
  EXPECT_THAT(batches.Next(Units(4, 100 * kMiB), {}, true, kNow), SizeIs(3));
}

TEST(FreezeBatchesNext, OneUnitIsFrozenHoweverLargeItIs) {
  FreezeBatchOptions options = kOptions;
  options.bytes_max = 1;
  FreezeBatches batches(options);
  EXPECT_THAT(batches.Next(Units(3, kMiB), {}, true, kNow), SizeIs(1));
}

TEST(FreezeBatchesNext, ABatchWaitsForTheOneBeforeButNotForOneThatIsStuck) {
  FreezeBatches batches(kOptions);
  ASSERT_THAT(batches.Next(Units(2, 1), {}, false, kNow), SizeIs(2));
  const FreezeBatches::Frozen frozen{.units = 2, .bytes = 2};
  EXPECT_THAT(batches.Next(Units(4, 1), frozen, true, kNow + absl::Milliseconds(99)), IsEmpty());
  EXPECT_THAT(batches.Next(Units(4, 1), frozen, true, kNow + absl::Milliseconds(100)), SizeIs(2));
  EXPECT_THAT(batches.Next(Units(4, 1), {}, true, kNow + absl::Milliseconds(101)), SizeIs(4));
}

TEST(FreezeBatchesNext, NothingIsFrozenBeyondTheLimit) {
  FreezeBatches batches(kOptions);
  const FreezeBatches::Frozen full{.units = 4, .bytes = 4};
  EXPECT_THAT(batches.Next(Units(4, 1), full, false, kNow), IsEmpty());
}

}  // namespace
}  // namespace embla
