// The contract of every Communicator, as one suite of typed tests:
//   struct NcclFactory { static std::vector<std::unique_ptr<Communicator>> Make(uint32_t size); };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CommunicatorConformance, NcclFactory);
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/collective/communicator.h"

namespace embla {

template <typename Factory>
class CommunicatorConformance : public ::testing::Test {
 protected:
  static constexpr std::array<std::uint32_t, 5> kSizes = {1, 2, 3, 4, 8};

  // Runs `rank_body` once per rank, each on its own thread.
  static void OnAllRanks(std::uint32_t size, const std::function<void(Communicator&)>& rank_body) {
    const auto ranks = Factory::Make(size);
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) threads.emplace_back([&] { rank_body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

  // Values whose sums depend on the order in which they are added.
  static std::vector<float> Values(std::uint32_t rank, std::size_t count) {
    std::mt19937 random(rank * 7919 + 17);
    std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
    std::vector<float> values(count);
    for (float& value : values) value = std::ldexp(mantissa(random), random() % 24);
    return values;
  }

  static std::vector<float> SumInRankOrder(std::uint32_t size, std::size_t count) {
    std::vector<float> sum = Values(0, count);
    for (std::uint32_t r = 1; r < size; ++r) {
      const std::vector<float> values = Values(r, count);
      for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    return sum;
  }
};

TYPED_TEST_SUITE_P(CommunicatorConformance);

TYPED_TEST_P(CommunicatorConformance, RanksAreNumberedFromZero) {
  for (const std::uint32_t size : this->kSizes) {
    const auto ranks = TypeParam::Make(size);
    ASSERT_EQ(ranks.size(), size);
    for (std::uint32_t r = 0; r < size; ++r) {
      EXPECT_EQ(ranks[r]->rank(), r);
      EXPECT_EQ(ranks[r]->size(), size);
    }
  }
}

TYPED_TEST_P(CommunicatorConformance, AllReduceAddsInRankOrderAlsoInPlace) {
  for (const std::uint32_t size : this->kSizes) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}}) {
      this->OnAllRanks(size, [&](Communicator& rank) {
        std::vector<float> values = this->Values(rank.rank(), count);
        ASSERT_THAT(rank.AllReduceSum(values, values), testing::IsOk());
        EXPECT_EQ(values, this->SumInRankOrder(size, count));
      });
    }
  }
}

TYPED_TEST_P(CommunicatorConformance, ReduceScatterGivesEachRankItsPiece) {
  for (const std::uint32_t size : this->kSizes) {
    std::vector<std::size_t> counts(size);
    for (std::uint32_t r = 0; r < size; ++r) counts[r] = (r * 37) % 101;  // Rank 0 gets nothing.
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::vector<float> sum = this->SumInRankOrder(size, total);
    this->OnAllRanks(size, [&](Communicator& rank) {
      std::vector<float> out(counts[rank.rank()]);
      ASSERT_THAT(rank.ReduceScatterSum(this->Values(rank.rank(), total), counts, out),
                  testing::IsOk());
      const std::size_t begin =
          std::accumulate(counts.begin(), counts.begin() + rank.rank(), std::size_t{0});
      EXPECT_THAT(out, ::testing::ElementsAreArray(sum.data() + begin, out.size()));
    });
  }
}

TYPED_TEST_P(CommunicatorConformance, AllGatherJoinsInRankOrder) {
  for (const std::uint32_t size : this->kSizes) {
    std::vector<std::size_t> counts(size);
    std::vector<float> joined;
    for (std::uint32_t r = 0; r < size; ++r) {
      counts[r] = 5 * (size - r) - 5;  // The last rank brings nothing.
      const std::vector<float> values = this->Values(r, counts[r]);
      joined.insert(joined.end(), values.begin(), values.end());
    }
    this->OnAllRanks(size, [&](Communicator& rank) {
      std::vector<float> out(joined.size());
      ASSERT_THAT(rank.AllGather(this->Values(rank.rank(), counts[rank.rank()]), counts, out),
                  testing::IsOk());
      EXPECT_EQ(out, joined);
    });
  }
}

TYPED_TEST_P(CommunicatorConformance, AllToAllDeliversEveryPiece) {
  const auto count = [](std::uint32_t from, std::uint32_t to) {
    return std::size_t{(from * 3 + to * 5) % 7};
  };
  for (const std::uint32_t size : this->kSizes) {
    this->OnAllRanks(size, [&](Communicator& rank) {
      std::vector<std::size_t> send(size), receive(size);
      std::vector<float> in, expected;
      for (std::uint32_t r = 0; r < size; ++r) {
        send[r] = count(rank.rank(), r);
        receive[r] = count(r, rank.rank());
        for (std::size_t i = 0; i < send[r]; ++i) in.push_back(rank.rank() * 100.0f + r);
        for (std::size_t i = 0; i < receive[r]; ++i) expected.push_back(r * 100.0f + rank.rank());
      }
      std::vector<float> out(expected.size());
      ASSERT_THAT(rank.AllToAll(in, send, out, receive), testing::IsOk());
      EXPECT_EQ(out, expected);
    });
  }
}

TYPED_TEST_P(CommunicatorConformance, MaxIsTheLargestOfAllRanks) {
  for (const std::uint32_t size : this->kSizes) {
    this->OnAllRanks(size, [&](Communicator& rank) {
      std::int32_t largest = 0;
      ASSERT_THAT(rank.AllReduceMax(-5 - static_cast<std::int32_t>(rank.rank()), largest),
                  testing::IsOk());
      EXPECT_EQ(largest, -5);
    });
  }
}

TYPED_TEST_P(CommunicatorConformance, VerbsAreBarriersForOtherMemory) {
  constexpr int kRounds = 200;
  for (const std::uint32_t size : this->kSizes) {
    std::vector<int> notes(size, 0);  // Plain memory: a missing barrier is a data race.
    this->OnAllRanks(size, [&](Communicator& rank) {
      for (int round = 1; round <= kRounds; ++round) {
        notes[rank.rank()] = round;
        std::int32_t largest = 0;
        ASSERT_THAT(rank.AllReduceMax(0, largest), testing::IsOk());
        for (const int note : notes) ASSERT_EQ(note, round);
        ASSERT_THAT(rank.Barrier(), testing::IsOk());
      }
    });
  }
}

TYPED_TEST_P(CommunicatorConformance, SizesThatDifferAreInvalidArgumentOnEveryRank) {
  this->OnAllRanks(3, [&](Communicator& rank) {
    const std::vector<std::size_t> counts = {2, 2, 2};
    std::vector<float> in(rank.rank() == 1 ? 7 : 6), out(2);
    EXPECT_EQ(rank.ReduceScatterSum(in, counts, out).code(), absl::StatusCode::kInvalidArgument);
    // The ranks are still in step.
    std::int32_t largest = 0;
    ASSERT_THAT(rank.AllReduceMax(static_cast<std::int32_t>(rank.rank()), largest),
                testing::IsOk());
    EXPECT_EQ(largest, 2);
  });
}

TYPED_TEST_P(CommunicatorConformance, AbortWakesEveryRankForGood) {
  const auto ranks = TypeParam::Make(3);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 1; r < 3; ++r) {
    threads.emplace_back([&, r] {
      EXPECT_EQ(ranks[r]->Barrier().code(), absl::StatusCode::kAborted);
      EXPECT_EQ(ranks[r]->Barrier().code(), absl::StatusCode::kAborted);
    });
  }
  ranks[0]->Abort();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ranks[0]->Barrier().code(), absl::StatusCode::kAborted);
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorConformance, RanksAreNumberedFromZero,
                            AllReduceAddsInRankOrderAlsoInPlace, ReduceScatterGivesEachRankItsPiece,
                            AllGatherJoinsInRankOrder, AllToAllDeliversEveryPiece,
                            MaxIsTheLargestOfAllRanks, VerbsAreBarriersForOtherMemory,
                            SizesThatDifferAreInvalidArgumentOnEveryRank,
                            AbortWakesEveryRankForGood);

}  // namespace embla
