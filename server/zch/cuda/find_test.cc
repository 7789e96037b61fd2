// Finding on the device against SlotMap::Find: maps that are nearly full, whose buckets travel to
// the device as blocks.
#include "server/zch/cuda/find.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/device_memory.h"
#include "server/zch/bucket_block.h"
#include "server/zch/slot_map.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;

using kernels::cuda::OnDevice;

constexpr std::uint32_t kBuckets = 7;
constexpr std::uint32_t kHeld[] = {0, 1, 3, 6};

SlotMapOptions Options(std::uint32_t reserved_lanes) {
  SlotMapOptions options;
  options.buckets = kBuckets;
  options.capacity = kBuckets * 64 * 5;
  options.reserved_lanes = reserved_lanes;
  options.huge_pages = false;
  return options;
}

std::vector<RowId> RandomIds(std::mt19937_64& random, std::size_t count) {
  std::vector<RowId> ids(count);
  for (RowId& id : ids) id = RowId{static_cast<std::int64_t>(random())};
  return ids;
}

// A map's groups as the device has them.
struct GroupBytes {
  explicit GroupBytes(const SlotMap& map)
      : groups(kBuckets * map.options().groups_per_bucket()), held(kBuckets) {
    const std::size_t bucket_groups = map.options().groups_per_bucket();
    for (const std::uint32_t bucket : kHeld) {
      held[bucket] = 1;
      const auto exported = map.ExportBucket(bucket);
      EXPECT_THAT(exported, IsOk());
      const auto block = DecodeBucket(map.options(), exported->bytes());
      EXPECT_THAT(block, IsOk());
      std::copy(block->groups.begin(), block->groups.end(),
                reinterpret_cast<std::byte*>(&groups[bucket * bucket_groups]));
    }
  }
  std::vector<SlotGroup> groups;
  std::vector<std::uint8_t> held;
};

class CudaFind : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    if (kernels::cuda::DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};
INSTANTIATE_TEST_SUITE_P(ReservedLanes, CudaFind, ::testing::Values(0u, 1u, 3u));

TEST_P(CudaFind, AnswersLikeTheMap) {
  std::mt19937_64 random(GetParam() + 1);
  const std::unique_ptr<SlotMap> map = *SlotMap::Create(Options(GetParam()));
  for (const std::uint32_t bucket : kHeld) ASSERT_THAT(map->AddBucket(bucket), IsOk());
  // Residents, and ids that had to go or whose bucket is not here; then ids that never came.
  std::vector<RowId> ids = RandomIds(random, 3000);
  Answer answer;
  map->Apply({ids, {}, {}, {}}, answer);
  const auto strangers = RandomIds(random, 1000);
  ids.insert(ids.end(), strangers.begin(), strangers.end());
  for (const std::int64_t id :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    ids.push_back(RowId{id});
  }
  std::vector<ZchSlot> want_slots(ids.size());
  std::vector<Outcome> want_outcomes(ids.size());
  map->Find(ids, want_slots, want_outcomes);

  const GroupBytes bytes(*map);
  const OnDevice groups(bytes.groups);
  const OnDevice held(bytes.held);
  const OnDevice device_ids(ids);
  std::vector<ZchSlot> slots(ids.size());
  std::vector<Outcome> outcomes(ids.size());
  const OnDevice device_slots(slots);
  const OnDevice device_outcomes(outcomes);
  ASSERT_EQ(
      cuda::FindAsync({groups.data(), held.As<std::uint8_t>(), kBuckets,
                       map->options().groups_per_bucket(), GetParam()},
                      device_ids.As<std::int64_t>(), ids.size(), device_slots.As<std::int64_t>(),
                      device_outcomes.As<std::uint8_t>(), nullptr),
      0);
  device_slots.CopyTo(slots.data());
  device_outcomes.CopyTo(outcomes.data());
  EXPECT_EQ(slots, want_slots);
  EXPECT_EQ(outcomes, want_outcomes);
  for (const Outcome outcome : {Outcome::kHit, Outcome::kMissing, Outcome::kNotHere}) {
    EXPECT_GE(std::count(outcomes.begin(), outcomes.end(), outcome), 300);
  }
}

TEST_P(CudaFind, NoIdsAreFine) {
  EXPECT_EQ(cuda::FindAsync({}, nullptr, 0, nullptr, nullptr, nullptr), 0);
}

}  // namespace
}  // namespace embla::zch
