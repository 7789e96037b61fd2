// A reshard of 100,000 units makes few plans, however long it takes: every version is one more for
// every client and node to take over.
//
// The coordinator is the one of production, on a store in memory; time is simulated. The source
// hands over what it is asked for, each unit after the same time.
#include <cstdint>
#include <deque>
#include <iostream>
#include <set>
#include <variant>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

constexpr std::uint32_t kUnits = 100'000;  // Half of the table's.
constexpr std::uint32_t kInFlight = 160;
constexpr std::uint64_t kVersionsMax = 100;

class ManyUnits {
 public:
  // A unit is handed over `unit_takes` after its source heard of the move; nobody looks at the time
  // more often than that.
  explicit ManyUnits(absl::Duration unit_takes) : unit_takes_(unit_takes) {
    nodes_ = {c_.Register("a")};
    TableSpec spec = CoordinatorHarness::Spec("t", /*rows=*/2 * kUnits);
    spec.row_granules = 2 * kUnits;
    EXPECT_THAT(c_->StartCreateTable(spec, {.sharding = ShardingType::kRowWise}, {}, c_.now()),
                IsOk());
    EXPECT_THAT(c_.Install(nodes_.front()), IsOk());
    nodes_.push_back(c_.Register("b"));
    EXPECT_THAT(c_.Install(nodes_.back()), IsOk());
    TakeEffects();
  }

  // From the devices of one node to those of two. Returns the versions of the plan that it makes.
  std::uint64_t Reshard() {
    const std::uint64_t before = ToInt(c_->GetPlan()->version());
    const auto started =
        c_->StartJob({.goal = ReshardGoal{"t", 4}, .units_in_flight = kInFlight}, c_.now());
    EXPECT_THAT(started, IsOk());
    if (!started.ok()) return 0;
    EXPECT_EQ(started->units_total, kUnits);
    JobView view = *started;
    for (const absl::Time until = c_.now() + absl::Hours(24); !IsOver(view.job.state);) {
      EXPECT_LT(c_.now(), until) << view.job.units_moved << " have moved";
      if (c_.now() >= until) break;
      Step();
      view = *c_->GetJob(started->job.id, c_.now());
    }
    EXPECT_EQ(view.job.state, JobState::kDone);
    EXPECT_EQ(view.job.units_moved, kUnits);
    took_ = c_.now() - started->job.started;
    return ToInt(c_->GetPlan()->version()) - before;
  }
  absl::Duration took() const { return took_; }

 private:
  struct HandOver {
    absl::Time at;
    UnitId unit;
    MoveId move{};
  };

  void Step() {
    c_.Advance(unit_takes_);
    for (const NodeId node : nodes_) EXPECT_THAT(c_.Install(node), IsOk());
    TakeEffects();
    std::vector<UnitReport> reports;
    while (!moving_.empty() && moving_.front().at <= c_.now()) {
      const HandOver& over = moving_.front();
      reports.push_back(
          {.unit = over.unit, .kind = UnitReport::Kind::kHandedOver, .move = over.move});
      moving_.pop_front();
    }
    c_->OnMoveReports(nodes_.front(), reports, c_.now());
    TakeEffects();
    c_->Tick(c_.now());
    TakeEffects();
  }

  void TakeEffects() {
    for (const Effect& effect : c_->TakeEffects()) {
      const auto* const orders = std::get_if<SendOrders>(&effect);
      if (orders == nullptr) continue;
      for (const UnitOrder& order : orders->orders) {
        const UnitRecord& record = order.record;
        const bool is_asked = record.phase == MovePhase::kOpen && orders->node == nodes_.front();
        if (!is_asked || !asked_.insert(order.unit).second) continue;
        moving_.push_back({c_.now() + unit_takes_, order.unit, record.move});
      }
    }
  }

  CoordinatorHarness c_;
  const absl::Duration unit_takes_;
  std::vector<NodeId> nodes_;    // The first one is the source.
  std::deque<HandOver> moving_;  // By time.
  std::set<UnitId> asked_;
  absl::Duration took_;
};

TEST(ManyUnitsReshard, InAMinuteMakesFewPlans) {
  ManyUnits units(absl::Milliseconds(100));
  const std::uint64_t versions = units.Reshard();
  std::cout << "units=" << kUnits << " versions=" << versions << " simulated=" << units.took()
            << '\n';
  EXPECT_LE(versions, kVersionsMax);
  EXPECT_GE(versions, kUnits / 4096);  // Each has so many units at most.
}

TEST(ManyUnitsReshard, InHoursMakesFewPlans) {
  ManyUnits units(absl::Seconds(20));
  const std::uint64_t versions = units.Reshard();
  std::cout << "units=" << kUnits << " versions=" << versions << " simulated=" << units.took()
            << '\n';
  EXPECT_GT(units.took(), absl::Hours(3));
  EXPECT_LE(versions, kVersionsMax);
}

}  // namespace
}  // namespace embla
