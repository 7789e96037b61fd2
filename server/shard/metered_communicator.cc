#include "server/shard/metered_communicator.h"

#include <chrono>
#include <utility>

namespace embla {
namespace {

class MeteredCommunicator final : public Communicator {
 public:
  MeteredCommunicator(std::unique_ptr<Communicator> rank, Counter seconds)
      : rank_(std::move(rank)), seconds_(seconds) {}

  std::uint32_t rank() const override { return rank_->rank(); }
  std::uint32_t size() const override { return rank_->size(); }

  absl::Status Barrier() override {
    return Measure([&] { return rank_->Barrier(); });
  }
  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override {
    return Measure([&] { return rank_->AllReduceSum(in, out); });
  }
  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override {
    return Measure([&] { return rank_->ReduceScatterSum(in, counts, out); });
  }
  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override {
    return Measure([&] { return rank_->AllGather(in, counts, out); });
  }
  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out,
                        std::span<const std::size_t> receive_counts) override {
    return Measure([&] { return rank_->AllToAll(in, send_counts, out, receive_counts); });
  }
  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    return Measure([&] { return rank_->AllReduceMax(in, out); });
  }
  void Abort() override { rank_->Abort(); }

 private:
  template <typename Verb>
  absl::Status Measure(const Verb& verb) {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = verb();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_.Add(took.count());
    return status;
  }

  const std::unique_ptr<Communicator> rank_;
  const Counter seconds_;
};

}  // namespace

std::unique_ptr<Communicator> Metered(std::unique_ptr<Communicator> rank, Counter seconds) {
  if (!seconds.counts()) return rank;
  return std::make_unique<MeteredCommunicator>(std::move(rank), seconds);
}

}  // namespace embla
