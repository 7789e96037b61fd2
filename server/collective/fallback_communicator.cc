#include "server/collective/fallback_communicator.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// How a verb went among the GPUs; the largest of all ranks counts.
enum Course : std::int32_t { kDone, kFailed, kLost };

Course CourseOf(const absl::Status& status) {
  if (status.ok()) return kDone;
  return absl::IsAborted(status) || absl::IsUnavailable(status) ? kLost : kFailed;
}

class FallbackCommunicator final : public Communicator {
 public:
  FallbackCommunicator(std::unique_ptr<Communicator> gpus, std::unique_ptr<Communicator> host)
      : gpus_(std::move(gpus)), host_(std::move(host)) {}

  std::uint32_t rank() const override { return host_->rank(); }
  std::uint32_t size() const override { return host_->size(); }

  absl::Status Barrier() override { return host_->Barrier(); }
  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    return host_->AllReduceMax(in, out);
  }

  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override {
    // A verb that fails may have overwritten its output, which may be its input.
    if (!gpus_lost_ && in.data() == out.data()) {
      kept_.assign(in.begin(), in.end());
      in = kept_;
    }
    return Run([&](Communicator& by) { return by.AllReduceSum(in, out); });
  }
  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override {
    return Run([&](Communicator& by) { return by.ReduceScatterSum(in, counts, out); });
  }
  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override {
    return Run([&](Communicator& by) { return by.AllGather(in, counts, out); });
  }
  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out,
                        std::span<const std::size_t> receive_counts) override {
    return Run([&](Communicator& by) { return by.AllToAll(in, send_counts, out, receive_counts); });
  }

  void Abort() override {
    host_->Abort();
    gpus_->Abort();
  }

 private:
  template <typename Verb>
  absl::Status Run(const Verb& verb) {
    if (gpus_lost_) return verb(*host_);
    const absl::Status mine = verb(*gpus_);
    std::int32_t worst = kDone;
    EMBLA_RETURN_IF_ERROR(host_->AllReduceMax(CourseOf(mine), worst));
    if (worst == kDone) return absl::OkStatus();
    if (worst == kLost) Lose(mine);
    return verb(*host_);
  }

  void Lose(const absl::Status& mine) {
    gpus_lost_ = true;
    // Aborted says only that it was another rank.
    if (mine.ok() || absl::IsAborted(mine)) return;
    LogWarning("collective", "GPUs do not reach one another any more, sums go through the host",
               " rank=", rank(), " reason=", mine.message());
  }

  const std::unique_ptr<Communicator> gpus_;
  const std::unique_ptr<Communicator> host_;
  bool gpus_lost_ = false;  // The same on all ranks.
  std::vector<float> kept_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> WithFallback(
    std::vector<std::unique_ptr<Communicator>> gpus,
    std::vector<std::unique_ptr<Communicator>> host) {
  EMBLA_CHECK(gpus.size() == host.size());
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    ranks.push_back(std::make_unique<FallbackCommunicator>(std::move(gpus[r]), std::move(host[r])));
  }
  return ranks;
}

}  // namespace embla
