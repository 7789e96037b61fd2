#include "server/collective/host_communicator.h"

#include "gtest/gtest.h"
#include "server/collective/communicator_conformance.h"

namespace embla {
namespace {

struct HostFactory {
  static std::vector<std::unique_ptr<Communicator>> Make(std::uint32_t size) {
    return MakeHostCommunicators(size);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Host, CommunicatorConformance, HostFactory);

TEST(HostCommunicatorVerbs, AnotherVerbOnOneRankIsInvalidArgument) {
  const auto ranks = MakeHostCommunicators(2);
  std::thread other(
      [&] { EXPECT_EQ(ranks[1]->Barrier().code(), absl::StatusCode::kInvalidArgument); });
  std::int32_t largest = 0;
  EXPECT_EQ(ranks[0]->AllReduceMax(1, largest).code(), absl::StatusCode::kInvalidArgument);
  other.join();
}

}  // namespace
}  // namespace embla
