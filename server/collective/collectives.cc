#include "server/collective/collectives.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/collective/fallback_communicator.h"
#include "server/collective/gpu_communicator.h"
#include "server/collective/host_communicator.h"

namespace embla {
namespace {

using Clock = std::chrono::steady_clock;

// A rank's partial sums of 1,024 bags of 64 columns for every device.
constexpr std::size_t kFloatsPerRank = std::size_t{64} << 10;
constexpr int kWarmUps = 2;
constexpr int kRounds = 9;
constexpr absl::Duration kPatience = absl::Seconds(5);

absl::StatusOr<Communicators> MakeAmongGpus(Collectives collectives,
                                            std::span<gpu::Device* const> gpus,
                                            std::unique_ptr<NcclLibrary>* nccl,
                                            const NcclOptions& options) {
  if (std::ranges::count(gpus, nullptr) > 0) {
    return absl::FailedPreconditionError("a device is no GPU");
  }
  if (collectives == Collectives::kPeer) return MakePeerCommunicators(gpus);
  EMBLA_ASSIGN_OR_RETURN(*nccl, LoadNccl());
  return MakeNcclCommunicators(gpus, **nccl, options);
}

// One rank's rounds. Returns how long each of them took.
absl::StatusOr<std::vector<Clock::duration>> AddUp(Communicator& communicator) {
  const std::size_t ranks = communicator.size();
  const std::vector<std::size_t> counts(ranks, kFloatsPerRank);
  // Small whole numbers, so that any order gives the same sums.
  std::vector<float> in(ranks * kFloatsPerRank);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(i % 251 + communicator.rank());
  }
  std::vector<float> out(kFloatsPerRank);
  std::vector<Clock::duration> took;
  for (int round = -kWarmUps; round < kRounds; ++round) {
    std::ranges::fill(out, -1.0f);
    EMBLA_RETURN_IF_ERROR(communicator.Barrier());
    const Clock::time_point begin = Clock::now();
    EMBLA_RETURN_IF_ERROR(communicator.ReduceScatterSum(in, counts, out));
    if (round >= 0) took.push_back(Clock::now() - begin);
    const std::size_t first = communicator.rank() * kFloatsPerRank;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float want = static_cast<float>(ranks * ((first + i) % 251) + ranks * (ranks - 1) / 2);
      if (out[i] != want) return absl::DataLossError("sums are wrong");
    }
  }
  return took;
}

// The median of the slowest rank.
absl::StatusOr<Clock::duration> TimeSums(const Communicators& communicators) {
  using Times = std::vector<Clock::duration>;
  std::vector<absl::StatusOr<Times>> times(communicators.size(), Times());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      times[r] = AddUp(*communicators[r]);
      if (!times[r].ok()) communicators[r]->Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Clock::duration slowest{};
  for (absl::StatusOr<Times>& rank : times) {
    EMBLA_RETURN_IF_ERROR(rank.status());
    std::ranges::nth_element(*rank, rank->begin() + kRounds / 2);
    slowest = std::max(slowest, (*rank)[kRounds / 2]);
  }
  return slowest;
}

absl::StatusOr<Clock::duration> Measure(Collectives collectives,
                                        std::span<gpu::Device* const> gpus) {
  if (collectives == Collectives::kHost) {
    return TimeSums(MakeHostCommunicators(static_cast<std::uint32_t>(gpus.size())));
  }
  std::unique_ptr<NcclLibrary> nccl;  // Outlives the communicators.
  EMBLA_ASSIGN_OR_RETURN(const Communicators communicators,
                         MakeAmongGpus(collectives, gpus, &nccl, {.timeout = kPatience}));
  return TimeSums(communicators);
}

}  // namespace

std::string_view NameOf(Collectives collectives) {
  constexpr std::string_view kNames[] = {"auto", "host", "peer", "nccl"};
  return kNames[static_cast<std::size_t>(collectives)];
}

absl::StatusOr<Communicators> MakeCommunicators(Collectives collectives,
                                                std::span<gpu::Device* const> gpus,
                                                std::unique_ptr<NcclLibrary>* nccl) {
  EMBLA_CHECK(collectives != Collectives::kAuto);
  Communicators host = MakeHostCommunicators(static_cast<std::uint32_t>(gpus.size()));
  if (collectives == Collectives::kHost) return host;
  EMBLA_ASSIGN_OR_RETURN(Communicators among_gpus, MakeAmongGpus(collectives, gpus, nccl, {}));
  return WithFallback(std::move(among_gpus), std::move(host));
}

CollectivesChoice ChooseCollectives(std::span<gpu::Device* const> gpus) {
  CollectivesChoice choice;
  if (gpus.size() < 2 || std::ranges::count(gpus, nullptr) > 0) {
    choice.why = gpus.size() < 2 ? "one device" : "a device is no GPU";
    return choice;
  }
  std::optional<Clock::duration> least;
  for (const Collectives way : {Collectives::kHost, Collectives::kPeer, Collectives::kNccl}) {
    const absl::StatusOr<Clock::duration> took = Measure(way, gpus);
    absl::StrAppend(&choice.why, choice.why.empty() ? "" : ", ", ToAbsl(NameOf(way)), " ");
    if (!took.ok()) {
      absl::StrAppend(&choice.why, "is not possible (", took.status().message(), ")");
      continue;
    }
    absl::StrAppend(&choice.why,
                    std::chrono::duration_cast<std::chrono::microseconds>(*took).count(), " us");
    if (least.has_value() && *took >= *least) continue;
    least = *took;
    choice.collectives = way;
  }
  return choice;
}

}  // namespace embla
