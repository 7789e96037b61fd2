#include "server/collective/host_communicator.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/collective/meeting.h"

namespace embla {
namespace {

using Verb = Contribution::Verb;

class HostCommunicator final : public Communicator {
 public:
  explicit HostCommunicator(Seat seat) : seat_(std::move(seat)) {}

  std::uint32_t rank() const override { return seat_.rank(); }
  std::uint32_t size() const override { return seat_.size(); }

  absl::Status Barrier() override {
    EMBLA_RETURN_IF_ERROR(seat_.Publish({.verb = Verb::kBarrier}));
    return seat_.Finish(seat_.CheckSameVerb());
  }

  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(seat_.Publish({.verb = Verb::kAllReduceSum, .in = in}));
    absl::Status status = seat_.CheckSameVerb();
    status.Update(
        seat_.CheckInputs("AllReduceSum input", [&](std::uint32_t) { return out.size(); }));
    // `out` may be `in`, which others still read: it is written after they are done.
    std::vector<float> sum;
    if (status.ok()) {
      sum.resize(out.size());
      Sum(0, sum);
    }
    EMBLA_RETURN_IF_ERROR(seat_.Finish(status));
    std::copy(sum.begin(), sum.end(), out.begin());
    return absl::OkStatus();
  }

  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(
        seat_.Publish({.verb = Verb::kReduceScatter, .in = in, .counts = counts}));
    absl::Status status = seat_.CheckCounts(counts);
    status.Update(
        seat_.CheckInputs("ReduceScatterSum input", [&](std::uint32_t) { return Total(counts); }));
    if (status.ok()) {
      status = seat_.CheckSize("ReduceScatterSum output", rank(), out.size(), counts[rank()]);
    }
    if (status.ok()) Sum(Before(counts, rank()), out);
    return seat_.Finish(status);
  }

  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(seat_.Publish({.verb = Verb::kAllGather, .in = in, .counts = counts}));
    absl::Status status = seat_.CheckCounts(counts);
    if (status.ok()) {
      status = seat_.CheckInputs("AllGather input", [&](std::uint32_t r) { return counts[r]; });
    }
    if (status.ok()) {
      status = seat_.CheckSize("AllGather output", rank(), out.size(), Total(counts));
    }
    std::size_t at = 0;
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      std::copy(seat_.At(r).in.begin(), seat_.At(r).in.end(), out.begin() + at);
      at += seat_.At(r).in.size();
    }
    return seat_.Finish(status);
  }

  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out,
                        std::span<const std::size_t> receive_counts) override {
    EMBLA_RETURN_IF_ERROR(
        seat_.Publish({.verb = Verb::kAllToAll, .in = in, .counts = send_counts}));
    const absl::Status status = seat_.CheckAllToAll(out.size(), receive_counts);
    std::size_t at = 0;
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      const Contribution& from = seat_.At(r);
      const auto piece = from.in.subspan(Before(from.counts, rank()), receive_counts[r]);
      std::copy(piece.begin(), piece.end(), out.begin() + at);
      at += piece.size();
    }
    return seat_.Finish(status);
  }

  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    return MaxOfAll(seat_, in, out);
  }

  void Abort() override { seat_.meeting().Abort(); }

 private:
  // out[i] = sum over ranks, in rank order, of in[begin + i].
  void Sum(std::size_t begin, std::span<float> out) const {
    const auto first = seat_.At(0).in.subspan(begin, out.size());
    std::copy(first.begin(), first.end(), out.begin());
    for (std::uint32_t r = 1; r < size(); ++r) {
      const float* const in = seat_.At(r).in.data() + begin;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += in[i];
    }
  }

  const Seat seat_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeHostCommunicators(std::uint32_t size) {
  EMBLA_CHECK(size >= 1);
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::uint32_t r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<HostCommunicator>(Seat(r, meeting)));
  }
  return ranks;
}

}  // namespace embla
