#include "server/collective/collectives.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla {
namespace {

using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ChooseCollectives, WithoutTwoGpusIsTheHost) {
  gpu::SimulatedDevice gpu;
  for (const std::vector<gpu::Device*>& devices :
       std::vector<std::vector<gpu::Device*>>{{nullptr}, {&gpu}, {nullptr, nullptr}}) {
    EXPECT_EQ(ChooseCollectives(devices).collectives, Collectives::kHost);
  }
  const CollectivesChoice mixed = ChooseCollectives(std::vector<gpu::Device*>{&gpu, nullptr});
  EXPECT_EQ(mixed.collectives, Collectives::kHost);
  EXPECT_EQ(mixed.why, "a device is no GPU");
}

// Simulated GPUs copy by the host's processor, so going through its memory at once is the fastest.
TEST(ChooseCollectives, MeasuresEveryWayThatIsPossible) {
  gpu::SimulatedDevice first;
  gpu::SimulatedDevice second({.ordinal = 1});
  const CollectivesChoice choice = ChooseCollectives(std::vector<gpu::Device*>{&first, &second});
  EXPECT_THAT(choice.why, HasSubstr("host "));
  EXPECT_THAT(choice.why, HasSubstr(" us, peer "));
  EXPECT_THAT(choice.why, HasSubstr("nccl is not possible ("));
  EXPECT_NE(choice.collectives, Collectives::kNccl);
  EXPECT_EQ(first.used_bytes(), 0u);
}

TEST(ChooseCollectives, SaysWhyAWayIsNotPossible) {
  gpu::SimulatedDevice first({.has_peer_access = false});
  gpu::SimulatedDevice second({.ordinal = 1, .has_peer_access = false});
  const CollectivesChoice choice = ChooseCollectives(std::vector<gpu::Device*>{&first, &second});
  EXPECT_EQ(choice.collectives, Collectives::kHost);
  EXPECT_THAT(choice.why, HasSubstr("peer is not possible ("));
}

TEST(ChooseCollectives, AGpuThatStopsMeanwhileLeavesTheHost) {
  gpu::SimulatedDevice first, second;
  EXPECT_THAT(second.Stop(absl::InternalError("test")), StatusIs(absl::StatusCode::kUnavailable));
  const CollectivesChoice choice = ChooseCollectives(std::vector<gpu::Device*>{&first, &second});
  EXPECT_EQ(choice.collectives, Collectives::kHost);
}

TEST(MakeCommunicators, AmongGpusNeedsGpus) {
  gpu::SimulatedDevice gpu;
  std::unique_ptr<NcclLibrary> nccl;
  const std::vector<gpu::Device*> devices = {&gpu, nullptr};
  for (const Collectives way : {Collectives::kPeer, Collectives::kNccl}) {
    EXPECT_THAT(MakeCommunicators(way, devices, &nccl),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

}  // namespace
}  // namespace embla
