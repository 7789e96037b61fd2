// The conformance suite of maps of ids on the host's, and what threads do to it: nothing.
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "core/base/check.h"
#include "gtest/gtest.h"
#include "server/zch/host_id_map.h"
#include "server/zch/id_map_conformance.h"
#include "server/zch/slot_map.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {
namespace {

struct HostFactory {
  static constexpr std::uint64_t kOperations = 1000000;
  static bool CanHold(const SlotMapOptions&) { return true; }
  std::unique_ptr<IdMap> Make(const SlotMapOptions& options, BucketRange) {
    auto map = HostIdMap::Create(options);
    EMBLA_CHECK(map.ok());
    return *std::move(map);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Host, IdMapConformance, HostFactory);

// Large enough for several chunks in the first phase and many buckets in the second.
class SlotMapThreads : public ::testing::TestWithParam<Policy> {};

TEST_P(SlotMapThreads, AnyNumberGivesTheSameBytes) {
  SlotMapOptions options = SmallOptions(GetParam());
  options.buckets = 24;
  options.capacity = 24 * 4 * kLanes;
  options.admission = Admission::kCount;
  options.admission_count = 2;
  const auto expected = FullMap(options);
  std::vector<std::unique_ptr<SlotMap>> maps;
  const std::size_t threads[] = {1, 2, 3, 8};
  for (std::size_t i = 0; i < std::size(threads); ++i) maps.push_back(FullMap(options));
  constexpr std::uint64_t kSeed = 7;
  std::cout << "seed=" << kSeed << '\n';
  std::mt19937_64 random(kSeed);
  Answer want;
  Answer got;
  for (std::uint32_t step = 1; step <= 12; ++step) {
    std::vector<RowId> ids(20000);
    for (auto& id : ids) id = RowId{static_cast<std::int64_t>(random() % 12000)};
    const Batch batch{ids, {}, {}, {step, step * 4}};
    expected->Apply(batch, want);
    for (std::size_t i = 0; i < maps.size(); ++i) {
      ShuffledThreads loop(threads[i], step);
      maps[i]->Apply(batch, got, loop);
      ASSERT_EQ(got.slots, want.slots);
      ASSERT_EQ(got.outcomes, want.outcomes);
      ASSERT_EQ(got.evictions, want.evictions);
    }
  }
  for (const auto& map : maps) {
    EXPECT_EQ(map->statistics(), expected->statistics());
    for (std::uint32_t bucket = 0; bucket < options.buckets; ++bucket) {
      EXPECT_EQ(BlockOf(*map, bucket), BlockOf(*expected, bucket));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SlotMapThreads,
                         ::testing::Values(Policy::kLru, Policy::kLfu, Policy::kDistanceLfu,
                                           Policy::kTtl));

}  // namespace
}  // namespace embla::zch
