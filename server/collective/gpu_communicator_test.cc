#include "server/collective/gpu_communicator.h"

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/collective/communicator_conformance.h"
#include "server/collective/nccl_exchange.h"
#include "server/collective/testing/fake_nccl.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using gpu::SimulatedDevice;
using ::testing::HasSubstr;
using ::testing::Not;
using Pace = gpu::SimulatedDeviceOptions::Pace;
using Fault = gpu::SimulatedFault;

// GPUs of one machine.
class Gpus {
 public:
  Gpus(std::uint32_t count, Pace pace) {
    for (std::uint32_t i = 0; i < count; ++i) {
      owned_.push_back(std::make_unique<SimulatedDevice>(
          gpu::SimulatedDeviceOptions{.ordinal = i, .pace = pace}));
    }
  }
  SimulatedDevice& operator[](std::size_t i) { return *owned_[i]; }
  std::vector<gpu::Device*> First(std::uint32_t count) {
    std::vector<gpu::Device*> gpus;
    for (std::uint32_t i = 0; i < count; ++i) gpus.push_back(owned_[i].get());
    return gpus;
  }

 private:
  std::vector<std::unique_ptr<SimulatedDevice>> owned_;
};

std::vector<std::unique_ptr<Communicator>> Ranks(
    absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> made) {
  EXPECT_THAT(made, IsOk());
  return *std::move(made);
}

template <Pace kPace>
struct PeerFactory {
  static std::vector<std::unique_ptr<Communicator>> Make(std::uint32_t size) {
    static Gpus gpus(8, kPace);
    return Ranks(MakePeerCommunicators(gpus.First(size)));
  }
};

// All ranks are devices of one GPU.
struct LoopbackFactory {
  static std::vector<std::unique_ptr<Communicator>> Make(std::uint32_t size) {
    static Gpus gpus(1, Pace::kLate);
    return Ranks(MakePeerCommunicators(std::vector<gpu::Device*>(size, &gpus[0])));
  }
};

template <Pace kPace>
struct NcclFactory {
  static std::vector<std::unique_ptr<Communicator>> Make(std::uint32_t size) {
    static Gpus gpus(8, kPace);
    static FakeNccl nccl;
    return Ranks(MakeNcclCommunicators(gpus.First(size), nccl));
  }
};

using Factories =
    ::testing::Types<PeerFactory<Pace::kLate>, PeerFactory<Pace::kEager>, LoopbackFactory,
                     NcclFactory<Pace::kLate>, NcclFactory<Pace::kEager>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, CommunicatorConformance, Factories);

// Runs a sum on three ranks and returns their results.
std::array<absl::Status, 3> SumOnAll(std::span<const std::unique_ptr<Communicator>> ranks) {
  std::array<absl::Status, 3> statuses;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> values(100, 1.0f);
      statuses[r] = ranks[r]->AllReduceSum(values, values);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(GpuCommunicatorErrors, AGpuWithoutMemoryIsAnErrorOnEveryRankAndTheNextVerbSucceeds) {
  Gpus gpus(3, Pace::kLate);
  const auto ranks = Ranks(MakePeerCommunicators(gpus.First(3)));
  gpus[1].Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, 0});
  for (const absl::Status& status : SumOnAll(ranks)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  }
  for (const absl::Status& status : SumOnAll(ranks)) EXPECT_THAT(status, IsOk());
}

TEST(GpuCommunicatorErrors, AGpuThatStopsInTheMiddleEndsTheVerbOnEveryRank) {
  for (const std::uint32_t skip : {0u, 1u, 2u, 3u, 4u}) {
    Gpus gpus(3, Pace::kLate);
    FakeNccl nccl;
    const NcclOptions options{.timeout = absl::Seconds(60)};
    for (const bool with_nccl : {false, true}) {
      if (!gpus[1].health().ok()) gpus = Gpus(3, Pace::kLate);
      const auto ranks = Ranks(with_nccl ? MakeNcclCommunicators(gpus.First(3), nccl, options)
                                         : MakePeerCommunicators(gpus.First(3)));
      gpus[1].Inject({Fault::At::kQueue, Fault::Kind::kStop, skip});
      const auto statuses = SumOnAll(ranks);
      if (gpus[1].health().ok()) continue;  // The verb has fewer calls.
      EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable) << statuses[1];
      EXPECT_THAT(statuses[0], Not(IsOk()));
      EXPECT_THAT(statuses[2], Not(IsOk()));
    }
  }
}

TEST(MakePeerCommunicators, NeedsAccess) {
  SimulatedDevice a({.ordinal = 0, .has_peer_access = false});
  SimulatedDevice b({.ordinal = 1, .has_peer_access = false});
  const std::vector<gpu::Device*> gpus = {&a, &b};
  EXPECT_EQ(MakePeerCommunicators(gpus).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MakeNcclCommunicators, TakesEveryGpuOnce) {
  Gpus gpus(1, Pace::kLate);
  FakeNccl nccl;
  const std::vector<gpu::Device*> twice(2, &gpus[0]);
  const auto made = MakeNcclCommunicators(twice, nccl);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(made.status()), HasSubstr("GPU 0 is several devices"));
}

TEST(MakeNcclCommunicators, SaysWhatNcclSays) {
  Gpus gpus(2, Pace::kLate);
  FakeNccl nccl;
  nccl.SetResult(5);
  const auto made = MakeNcclCommunicators(gpus.First(2), nccl);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(made.status()), HasSubstr("fake error 5"));
}

TEST(MakeNcclCommunicators, SaysThatAGpuHasStoppedBeforeTheOthersWaitForIt) {
  Gpus gpus(3, Pace::kLate);
  FakeNccl nccl;
  const absl::Status stopped = gpus[1].Stop(absl::InternalError("test"));
  const NcclOptions patient{.timeout = absl::Hours(1)};
  EXPECT_EQ(MakeNcclCommunicators(gpus.First(3), nccl, patient).status(), stopped);
  EXPECT_EQ(nccl.aborts(), 0);  // None was begun.
}

TEST(MakeNcclCommunicators, WaitsForAConnectionUntilTheTimeIsUp) {
  Gpus gpus(2, Pace::kLate);
  FakeNccl nccl;
  nccl.SetAsyncError(kNcclInProgress);
  const auto made = MakeNcclCommunicators(gpus.First(2), nccl, {.timeout = absl::Milliseconds(5)});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(made.status()), HasSubstr("not connected the GPUs within 5ms"));
  EXPECT_EQ(nccl.aborts(), 2);
}

class NcclExchangeWaits : public ::testing::Test {
 protected:
  // Rank 0 alone: the others never come.
  absl::Status Exchange(absl::Duration timeout) {
    auto made = MakeNcclExchanges(gpus_.First(2), nccl_, {.timeout = timeout});
    EXPECT_THAT(made, IsOk());
    ranks_ = *std::move(made);
    return Again();
  }
  absl::Status Again() {
    const auto stream = gpus_[0].NewStream();
    const auto memory = gpus_[0].Allocate(8);
    float* const data = memory->As<float>();
    const SendPiece sends[] = {{data, 0}, {data, 1}};
    const ReceivePiece receives[] = {{data, 0}, {data + 1, 1}};
    return ranks_[0]->Exchange(sends, receives, **stream);
  }

  Gpus gpus_{2, Pace::kLate};
  FakeNccl nccl_;
  std::vector<std::unique_ptr<GpuExchange>> ranks_;
};

TEST_F(NcclExchangeWaits, UntilTheTimeIsUpAndThenLeavesForGood) {
  const absl::Status status = Exchange(absl::Milliseconds(10));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), HasSubstr("within 10ms"));
  EXPECT_EQ(nccl_.aborts(), 1);
  EXPECT_EQ(Again().code(), absl::StatusCode::kAborted);
}

TEST_F(NcclExchangeWaits, AlsoForTheHostOfNcclUntilTheTimeIsUp) {
  auto made = MakeNcclExchanges(gpus_.First(2), nccl_, {.timeout = absl::Milliseconds(10)});
  ASSERT_THAT(made, IsOk());
  ranks_ = *std::move(made);
  nccl_.SetAsyncError(kNcclInProgress);  // The first exchange of a pair connects them.
  EXPECT_EQ(Again().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(nccl_.aborts(), 1);
}

TEST_F(NcclExchangeWaits, UntilNcclReportsAnError) {
  auto made = MakeNcclExchanges(gpus_.First(2), nccl_, {.timeout = absl::Hours(1)});
  ASSERT_THAT(made, IsOk());
  ranks_ = *std::move(made);
  nccl_.SetAsyncError(6);
  const absl::Status status = Again();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("fake error 6"));
  EXPECT_EQ(nccl_.aborts(), 1);
}

TEST_F(NcclExchangeWaits, UntilSomebodyAborts) {
  ASSERT_EQ(Exchange(absl::Milliseconds(1)).code(), absl::StatusCode::kAborted);
  auto made = MakeNcclExchanges(gpus_.First(2), nccl_, {.timeout = absl::Hours(1)});
  ASSERT_THAT(made, IsOk());
  ranks_ = *std::move(made);
  std::thread other([&] { ranks_[1]->Abort(); });
  EXPECT_EQ(Again().code(), absl::StatusCode::kAborted);
  other.join();
}

TEST(NcclExchanges, LetMemoryBeAllocatedOnlyBetweenThem) {
  FakeNccl nccl;
  std::atomic<int> overlaps = 0;
  std::vector<std::unique_ptr<SimulatedDevice>> gpus;
  for (std::uint32_t i = 0; i < 2; ++i) {
    gpus.push_back(std::make_unique<SimulatedDevice>(gpu::SimulatedDeviceOptions{
        .ordinal = i, .on_allocation = [&] { overlaps += nccl.under_way(); }}));
  }
  const auto ranks =
      Ranks(MakeNcclCommunicators(std::vector<gpu::Device*>{gpus[0].get(), gpus[1].get()}, nccl));
  std::atomic<int> sums = 0;
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] {
      const std::vector<float> in(100, 1.0f);
      std::vector<float> out(in.size());
      for (int i = 0; i < 2000; ++i) {
        ASSERT_THAT(rank->AllReduceSum(in, out), IsOk());
        ASSERT_EQ(out.back(), 2.0f);
        ++sums;
      }
    });
  }
  // Each other GPU's memory, as a thread that makes tables does.
  std::size_t allocated = 0;
  for (; sums < 4000; ++allocated) ASSERT_THAT(gpus[allocated % 2]->Allocate(1024), IsOk());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_GT(allocated, 10u);
}

TEST(LoadNccl, FindsItOrSaysThatItIsNotThere) {
  const auto nccl = LoadNccl();
  if (nccl.ok()) {
    EXPECT_FALSE((*nccl)->ErrorText(1).empty());
    return;
  }
  EXPECT_EQ(nccl.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(nccl.status()), HasSubstr("NCCL is not installed"));
}

}  // namespace
}  // namespace embla
