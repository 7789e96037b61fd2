#include "server/table/request_turns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::Le;

constexpr DeviceSet kOne = DeviceSet::Of(0);
constexpr std::uint64_t kAny = UINT64_MAX;

// Turns of one device, whose requests are numbered as they come.
class Turns {
 public:
  std::uint64_t Add(std::uint64_t origin, double cost = 1, DeviceSet devices = kOne) {
    turns_.Add(RequestOrigin{origin},
               {.task = nullptr, .devices = devices, .number = ++numbers_, .cost = cost});
    return numbers_;
  }
  // 0: none.
  std::uint64_t Take(std::uint32_t device = 0, std::uint64_t before = kAny, DeviceSet full = {}) {
    const auto taken = turns_.Take(device, before, full);
    return taken.has_value() ? taken->number : 0;
  }
  RequestTurns& operator*() { return turns_; }

 private:
  RequestTurns turns_;
  std::uint64_t numbers_ = 0;
};

TEST(RequestTurnsTake, KeepsTheOrderOfOneOrigin) {
  Turns turns;
  for (const double cost : {100, 1, 50, 1}) turns.Add(7, cost);
  EXPECT_THAT((std::vector{turns.Take(), turns.Take(), turns.Take(), turns.Take(), turns.Take()}),
              ElementsAre(1, 2, 3, 4, 0));
}

TEST(RequestTurnsTake, GivesOriginsWithBacklogEqualShares) {
  Turns turns;
  std::map<std::uint64_t, std::uint64_t> origin_of;
  for (int i = 0; i < 100; ++i) {
    origin_of[turns.Add(1, 10)] = 1;
    origin_of[turns.Add(2, 1)] = 2;
    origin_of[turns.Add(2, 1)] = 2;
  }
  double had[3] = {};
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t origin = origin_of[turns.Take()];
    had[origin] += origin == 1 ? 10 : 1;
    EXPECT_THAT(std::abs(had[1] - had[2]), Le(11)) << i;
  }
}

// Fifty that ask for much all the time, and one that asks for little now and then.
TEST(RequestTurnsTake, TakesWhoAskedForLittleNext) {
  Turns turns;
  constexpr std::uint64_t kHeavy = 50;
  std::map<std::uint64_t, std::uint64_t> origin_of;
  for (std::uint64_t origin = 1; origin <= kHeavy; ++origin) {
    origin_of[turns.Add(origin, 1000)] = origin;
  }
  int later = 0;
  for (int i = 0; i < 5000; ++i) {
    std::uint64_t light = 0;
    if (i % 13 == 0) light = turns.Add(99, 1);
    std::uint64_t taken = turns.Take();
    if (light != 0 && taken != light) ++later;
    while (light != 0 && taken != light) {
      origin_of[turns.Add(origin_of[taken], 1000)] = origin_of[taken];
      taken = turns.Take();
    }
    if (light != 0) taken = turns.Take();
    origin_of[turns.Add(origin_of[taken], 1000)] = origin_of[taken];
  }
  EXPECT_THAT(later, Le(4));
}

// One device, on which each of fifty always has one request of 1000 units and a light one asks for
// 10 units every 700. Returns how long the light one's requests waited, in ascending order.
std::vector<double> WaitsOfLight(bool in_turns) {
  constexpr std::uint64_t kHeavy = 50;
  constexpr std::uint64_t kLight = 99;
  constexpr double kHeavyTime = 1000;
  Turns turns;
  std::map<std::uint64_t, std::uint64_t> origin_of;
  std::map<std::uint64_t, double> came;
  const auto add = [&](std::uint64_t origin, double cost, double now) {
    const std::uint64_t number = turns.Add(in_turns ? origin : 1, cost);
    origin_of[number] = origin;
    came[number] = now;
  };
  for (std::uint64_t origin = 1; origin <= kHeavy; ++origin) add(origin, kHeavyTime, 0);
  std::vector<double> waits;
  double next_light = 0;
  bool light_waits = false;
  for (double now = 0; waits.size() < 2000;) {
    while (!light_waits && next_light <= now) {
      add(kLight, 10, next_light);
      light_waits = true;
    }
    const std::uint64_t number = turns.Take();
    const std::uint64_t origin = origin_of[number];
    if (origin == kLight) {
      waits.push_back(now - came[number]);
      light_waits = false;
      next_light = std::max(now + 10, came[number] + 700);
      now += 10;
    } else {
      now += kHeavyTime;
      if (next_light > now - kHeavyTime && next_light < now && !light_waits) {
        add(kLight, 10, next_light);
        light_waits = true;
      }
      add(origin, kHeavyTime, now);
    }
  }
  std::ranges::sort(waits);
  return waits;
}

TEST(RequestTurnsTake, LetsALightClientWaitForOneHeavyRequestInsteadOfFifty) {
  const std::vector<double> in_turns = WaitsOfLight(true);
  const std::vector<double> by_arrival = WaitsOfLight(false);
  const std::size_t p99 = in_turns.size() * 99 / 100;
  const std::size_t p50 = in_turns.size() / 2;
  RecordProperty("p99_wait_in_turns", std::to_string(in_turns[p99]));
  RecordProperty("p99_wait_by_arrival", std::to_string(by_arrival[p99]));
  EXPECT_THAT(in_turns[p99], Le(2 * 1000));
  EXPECT_THAT(in_turns[p50], Le(by_arrival[p50] / 10));
}

TEST(RequestTurnsTake, NewOriginsWithoutEndStarveNobody) {
  Turns turns;
  constexpr int kWaiting = 10;
  const std::uint64_t heavy = turns.Add(1, 1000);
  std::uint64_t origin = 1;
  for (int i = 0; i < kWaiting; ++i) turns.Add(++origin, 10);
  int served = 0;
  while (turns.Take() != heavy) {
    turns.Add(++origin, 10);
    // By then each of those that wait could have had as much.
    ASSERT_LE(++served, (kWaiting + 1) * 1000 / 10);
  }
}

TEST(RequestTurnsTake, LeavesWhatIsForOthersOrBehindTheBorderOrNeedsAFullDevice) {
  Turns turns;
  const std::uint64_t both = turns.Add(1, 1, DeviceSet::First(2));
  const std::uint64_t second = turns.Add(2, 1, DeviceSet::Of(1));
  EXPECT_EQ((*turns).first_number(), both);
  EXPECT_EQ(turns.Take(0, kAny, DeviceSet::Of(1)), 0u);
  EXPECT_EQ(turns.Take(1, both), 0u);
  EXPECT_EQ(turns.Take(0), both);
  EXPECT_EQ(turns.Take(0), 0u);
  EXPECT_EQ(turns.Take(1), second);
  EXPECT_TRUE((*turns).empty());
}

TEST(RequestTurnsAdd, ForgetsOriginsThatAskForNothing) {
  Turns turns;
  for (std::uint64_t origin = 1; origin <= 100'000; ++origin) {
    turns.Add(origin);
    EXPECT_NE(turns.Take(), 0u);
  }
  EXPECT_LE((*turns).origins(), 2000u);
}

}  // namespace
}  // namespace embla
