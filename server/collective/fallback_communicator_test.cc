#include "server/collective/fallback_communicator.h"

#include <memory>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/collective/communicator_conformance.h"
#include "server/collective/gpu_communicator.h"
#include "server/collective/host_communicator.h"
#include "server/collective/testing/fake_nccl.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using gpu::SimulatedDevice;
using ::testing::Each;
using Fault = gpu::SimulatedFault;

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// Ranks on GPUs of their own, which outlive them.
struct Machine {
  explicit Machine(std::uint32_t count, bool with_nccl = false) {
    std::vector<gpu::Device*> devices;
    for (std::uint32_t i = 0; i < count; ++i) {
      gpus.push_back(std::make_unique<SimulatedDevice>(gpu::SimulatedDeviceOptions{.ordinal = i}));
      devices.push_back(gpus.back().get());
    }
    auto made = with_nccl ? MakeNcclCommunicators(devices, nccl) : MakePeerCommunicators(devices);
    EXPECT_THAT(made, IsOk());
    ranks = WithFallback(*std::move(made), MakeHostCommunicators(count));
  }

  // Sums up the numbers of the ranks, on all of them; `in_place`: AllReduceSum.
  std::vector<std::vector<float>> Sum(bool in_place) {
    std::vector<std::vector<float>> sums(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        std::vector<float> values(ranks.size() * 100, static_cast<float>(r + 1));
        sums[r] = std::vector<float>(in_place ? values.size() : 100);
        const std::vector<std::size_t> counts(ranks.size(), 100);
        if (in_place) sums[r] = values;
        const absl::Status status = in_place ? ranks[r]->AllReduceSum(sums[r], sums[r])
                                             : ranks[r]->ReduceScatterSum(values, counts, sums[r]);
        EXPECT_THAT(status, IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sums;
  }

  FakeNccl nccl;
  std::vector<std::unique_ptr<SimulatedDevice>> gpus;
  Ranks ranks;
};

struct FallbackFactory {
  static Ranks Make(std::uint32_t size) {
    static std::vector<std::unique_ptr<Machine>> machines;
    machines.push_back(std::make_unique<Machine>(size));
    return std::move(machines.back()->ranks);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OverPeer, CommunicatorConformance, FallbackFactory);

TEST(FallbackCommunicator, SumsAreRightWhateverFailsAmongTheGpusAndAfterwards) {
  for (const bool with_nccl : {false, true}) {
    for (const Fault::Kind kind : {Fault::Kind::kRefused, Fault::Kind::kStop}) {
      for (const bool in_place : {false, true}) {
        bool due = true;
        // At every call of the verb in turn.
        for (std::uint32_t skip = 0; due; ++skip) {
          Machine machine(3, with_nccl);
          machine.gpus[1]->Inject({Fault::At::kQueue, kind, skip});
          for (int round = 0; round < 2; ++round) {
            EXPECT_THAT(machine.Sum(in_place), Each(Each(6.0f))) << "after " << skip << " calls";
          }
          due = kind == Fault::Kind::kStop ? !machine.gpus[1]->health().ok() : skip < 12;
        }
      }
    }
  }
}

TEST(FallbackCommunicator, AfterAFailureThatPassesTheGpusGoOn) {
  Machine machine(3);
  machine.gpus[1]->Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, 0});
  EXPECT_THAT(machine.Sum(false), Each(Each(6.0f)));
  const std::size_t before = machine.gpus[1]->used_bytes();
  EXPECT_THAT(machine.Sum(false), Each(Each(6.0f)));
  EXPECT_GT(machine.gpus[1]->used_bytes(), before);
}

}  // namespace
}  // namespace embla
