// Buckets on the move: nothing is lost, and nothing damaged gets in.
#include "server/zch/bucket_block.h"

#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "core/base/crc32c.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;
using ::testing::Not;

SlotMapOptions CountingOptions(Policy policy) {
  SlotMapOptions options = SmallOptions(policy);
  options.admission = Admission::kCount;
  options.admission_count = 2;
  options.reserved_lanes = 4;
  return options;
}

void Train(SlotMap& map, std::mt19937_64& random, std::uint32_t first_step, int steps) {
  for (int i = 0; i < steps; ++i) {
    std::vector<RowId> ids(300);
    for (auto& id : ids) id = RowId{static_cast<std::int64_t>(random() % 1500) - 700};
    const std::uint32_t step = first_step + static_cast<std::uint32_t>(i);
    ApplyAt(map, ids, {step, step});
  }
}

std::vector<std::byte> TrainedBlock(const SlotMapOptions& options, std::uint32_t bucket) {
  const auto map = FullMap(options);
  std::mt19937_64 random(5);
  Train(*map, random, 1, 20);
  return BlockOf(*map, bucket);
}

std::unique_ptr<SlotMap> EmptyMap(const SlotMapOptions& options) {
  auto map = SlotMap::Create(options);
  EMBLA_CHECK(map.ok());
  return *std::move(map);
}

void FixChecksum(std::vector<std::byte>& block) {
  const std::span<const std::byte> bytes(block);
  const std::uint32_t crc = Crc32c(bytes.subspan(kBucketBlockHeaderBytes),
                                   Crc32c(bytes.first(kBucketBlockHeaderBytes - 4)));
  std::memcpy(block.data() + kBucketBlockHeaderBytes - 4, &crc, 4);
}

class BucketMove : public ::testing::TestWithParam<Policy> {};

// Trains one map, and beside it one whose buckets wander between three holders at each step.
TEST_P(BucketMove, ContinuesAsIfItHadNeverMoved) {
  const SlotMapOptions options = CountingOptions(GetParam());
  const auto still = FullMap(options);
  std::vector<std::unique_ptr<SlotMap>> holders;
  for (int i = 0; i < 3; ++i) holders.push_back(EmptyMap(options));
  std::vector<std::size_t> holder_of(options.buckets, 0);
  holders[0]->AddAllBuckets();
  std::mt19937_64 random(3);
  for (std::uint32_t step = 1; step <= 60; ++step) {
    std::mt19937_64 copy = random;
    Train(*still, random, step, 1);
    for (const auto& holder : holders) {
      std::mt19937_64 same = copy;
      Train(*holder, same, step, 1);
    }
    const std::uint32_t bucket = step % options.buckets;
    const std::size_t from = holder_of[bucket];
    const std::size_t to = (from + 1 + step % 2) % holders.size();
    const auto block = BlockOf(*holders[from], bucket);
    ASSERT_THAT(holders[to]->ImportBucket(block), IsOk());
    ASSERT_THAT(holders[from]->RemoveBucket(bucket), IsOk());
    holder_of[bucket] = to;
  }
  for (std::uint32_t bucket = 0; bucket < options.buckets; ++bucket) {
    EXPECT_EQ(BlockOf(*holders[holder_of[bucket]], bucket), BlockOf(*still, bucket));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BucketMove,
                         ::testing::Values(Policy::kLru, Policy::kLfu, Policy::kDistanceLfu,
                                           Policy::kTtl));

// Monolith's 26 000 ids, and an assertion on what was restored.
TEST(BucketRestore, GivesEveryIdItsSlotUnderAnyNumberOfHolders) {
  SlotMapOptions options = SmallOptions();
  options.buckets = 24;
  options.capacity = 1 << 16;
  const auto map = FullMap(options);
  std::vector<RowId> ids;
  for (std::int64_t number = -13000; number < 13000; ++number) ids.push_back(RowId{number});
  ApplyAt(*map, ids, {1, 1});
  const Found before = FindIn(*map, ids);
  for (const std::size_t holders : {1, 2, 5, 7}) {
    std::vector<std::unique_ptr<SlotMap>> restored;
    for (std::size_t i = 0; i < holders; ++i) restored.push_back(EmptyMap(options));
    for (std::uint32_t bucket = 0; bucket < options.buckets; ++bucket) {
      ASSERT_THAT(restored[bucket % holders]->ImportBucket(BlockOf(*map, bucket)), IsOk());
    }
    std::vector<Found> found;
    for (const auto& holder : restored) found.push_back(FindIn(*holder, ids));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint32_t bucket =
          PlaceOf(ids[i], options.buckets, options.groups_per_bucket()).bucket;
      EXPECT_EQ(found[bucket % holders].slots[i], before.slots[i]);
    }
  }
}

TEST(BucketBlockEncode, IsPinned) {
  SlotMapOptions options = SmallOptions(Policy::kLfu);
  options.buckets = 1;
  options.capacity = 64;
  const auto map = FullMap(options);
  ApplyAt(*map, RowIds({5}), {7, 0});
  const auto block = BlockOf(*map, 0);
  ASSERT_EQ(block.size(), 40u + 1344u);
  const auto at = [&](std::size_t i) { return std::to_integer<int>(block[i]); };
  EXPECT_EQ(std::memcmp(block.data(), "EMZB\1\0\2\0\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0", 24), 0);
  EXPECT_EQ(at(40), PlaceOf(RowId{5}, 1, 1).tag);
  EXPECT_EQ(at(40 + 64), 5);              // Id.
  EXPECT_EQ(at(40 + 64 + 512), 7);        // Last step.
  EXPECT_EQ(at(40 + 64 + 512 + 512), 1);  // Count.
}

TEST(BucketBlockDecode, TakesAnyAlignment) {
  const SlotMapOptions options = CountingOptions(Policy::kLru);
  const auto block = TrainedBlock(options, 1);
  std::vector<std::byte> shifted(block.size() + 1);
  std::memcpy(shifted.data() + 1, block.data(), block.size());
  const auto map = EmptyMap(options);
  ASSERT_THAT(map->ImportBucket(std::span(shifted).subspan(1)), IsOk());
  EXPECT_EQ(BlockOf(*map, 1), block);
}

TEST(BucketBlockDecode, RefusesBlocksOfOtherTables) {
  const auto block = TrainedBlock(CountingOptions(Policy::kLru), 1);
  const auto refuses = [&](auto change) {
    SlotMapOptions options = CountingOptions(Policy::kLru);
    change(options);
    EXPECT_EQ(EmptyMap(options)->ImportBucket(block).code(), absl::StatusCode::kInvalidArgument);
  };
  refuses([](auto& o) { o.buckets = 8; });
  refuses([](auto& o) { o.capacity = 1024; });
  refuses([](auto& o) { o.policy = Policy::kLfu; });
  refuses([](auto& o) { o.reserved_lanes = 3; });
  refuses([](auto& o) { o.admission = Admission::kAll; });
}

TEST(BucketBlockDecode, RefusesABucketThatIsHere) {
  const SlotMapOptions options = CountingOptions(Policy::kLru);
  const auto map = FullMap(options);
  EXPECT_EQ(map->ImportBucket(TrainedBlock(options, 1)).code(), absl::StatusCode::kAlreadyExists);
}

TEST(BucketBlockDecode, NoticesEveryChangedByteAndEveryOtherLength) {
  const SlotMapOptions options = CountingOptions(Policy::kLfu);
  auto block = TrainedBlock(options, 1);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{0x10};
    EXPECT_THAT(DecodeBucket(options, block), Not(IsOk())) << i;
    block[i] ^= std::byte{0x10};
  }
  for (std::size_t size = 0; size < block.size(); ++size) {
    EXPECT_THAT(DecodeBucket(options, std::span(block).first(size)), Not(IsOk())) << size;
  }
  block.push_back({});
  EXPECT_THAT(DecodeBucket(options, block), Not(IsOk()));
}

// Mutations with a right checksum: refused, or taken in without harm, which means that the map
// gives back the same block and goes on working.
TEST(BucketBlockDecode, SurvivesMutationsBehindARightChecksum) {
  constexpr std::uint64_t kSeed = 17;
  std::cout << "seed=" << kSeed << '\n';
  std::mt19937_64 random(kSeed);
  int taken = 0;
  for (const Policy policy : {Policy::kLru, Policy::kLfu, Policy::kTtl}) {
    const SlotMapOptions options = CountingOptions(policy);
    const auto original = TrainedBlock(options, 2);
    for (int i = 0; i < 3000; ++i) {
      auto block = original;
      const std::uint64_t changes = 1 + random() % 3;
      for (std::uint64_t c = 0; c < changes; ++c) {
        // Half of them in the header or in what follows the groups.
        const std::size_t at =
            random() % 2 == 0 ? random() % kBucketBlockHeaderBytes : random() % block.size();
        block[at] = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 3);
      }
      if (random() % 8 == 0) block.resize(random() % (block.size() + 1));
      if (block.size() >= kBucketBlockHeaderBytes) FixChecksum(block);
      const auto map = EmptyMap(options);
      if (!map->ImportBucket(block).ok()) continue;
      ++taken;
      std::uint32_t bucket = 0;
      while (!map->Holds(bucket)) ++bucket;
      EXPECT_EQ(BlockOf(*map, bucket), block);
      std::mt19937_64 again(i);
      Train(*map, again, 50, 1);
    }
  }
  EXPECT_GT(taken, 100);
}

TEST(BucketBlockDecode, RefusesContentThatContradictsItself) {
  const SlotMapOptions options = CountingOptions(Policy::kLfu);
  const auto original = TrainedBlock(options, 1);
  const auto refuses = [&](const char* what, auto change) {
    auto block = original;
    SlotGroup group;
    std::memcpy(&group, block.data() + kBucketBlockHeaderBytes, sizeof(group));
    change(group);
    std::memcpy(block.data() + kBucketBlockHeaderBytes, &group, sizeof(group));
    FixChecksum(block);
    EXPECT_EQ(DecodeBucket(options, block).status().code(), absl::StatusCode::kDataLoss) << what;
  };
  refuses("an id of another place", [](SlotGroup& g) { g.ids[0] ^= 1; });
  refuses("a wrong tag", [](SlotGroup& g) { g.tags[0] ^= 0x81; });
  refuses("an id twice", [](SlotGroup& g) { g.tags[1] = g.tags[0], g.ids[1] = g.ids[0]; });
  refuses("one id too few", [](SlotGroup& g) { ClearLane(Policy::kLfu, g, 0); });
  refuses("an empty lane with content", [](SlotGroup& g) { g.words[63] = 1; });
  refuses("an id in a reserved lane", [](SlotGroup& g) {
    g.tags[63] = g.tags[0];
    g.ids[63] = g.ids[0];
    ClearLane(Policy::kLfu, g, 0);
  });
}

}  // namespace
}  // namespace embla::zch
