#include "server/collective/peer_exchange.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/collective/meeting.h"
#include "server/gpu/kernel_table.h"

namespace embla {
namespace {

// The memory that ranks show one another: the pieces that they have for the others.
struct Window {
  explicit Window(std::uint32_t size) : meeting(size), sends(size) {}

  Meeting meeting;
  // By rank; ordered by the meeting's waits. Copies: a rank that fails does not wait for readers.
  std::vector<std::vector<SendPiece>> sends;
};

class PeerExchange final : public GpuExchange {
 public:
  PeerExchange(std::uint32_t rank, const gpu::KernelTable& kernels, std::shared_ptr<Window> window)
      : rank_(rank), kernels_(kernels), window_(std::move(window)) {}

  absl::Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                        gpu::Stream& stream) override {
    // The others read what is queued here.
    EMBLA_RETURN_IF_ERROR(stream.Synchronize());
    window_->sends[rank_].assign(sends.begin(), sends.end());
    EMBLA_RETURN_IF_ERROR(window_->meeting.Wait());
    EMBLA_RETURN_IF_ERROR(Pull(receives, stream));
    return window_->meeting.Wait();
  }

  void Abort() override { window_->meeting.Abort(); }

 private:
  absl::Status Pull(std::span<const ReceivePiece> receives, gpu::Stream& stream) const {
    absl::Status status;
    for (std::uint32_t r = 0; status.ok() && r < receives.size(); ++r) {
      const SendPiece& from = window_->sends[r][rank_];
      EMBLA_CHECK(from.count == receives[r].count);
      if (from.count == 0) continue;
      // A sum of one: a copy by the GPU's own reads.
      status = stream.Queue(
          "SumInOrder", [sum = kernels_.sum_in_order, from, to = receives[r].data](void* handle) {
            return sum(&from.data, 1, from.count, to, handle);
          });
    }
    // After a failure, too: the others may free their memory once this rank has left.
    status.Update(stream.Synchronize());
    return status;
  }

  const std::uint32_t rank_;
  const gpu::KernelTable& kernels_;  // Not owned; outlives this object.
  const std::shared_ptr<Window> window_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<GpuExchange>>> MakePeerExchanges(
    std::span<gpu::Device* const> gpus) {
  for (gpu::Device* const reader : gpus) {
    for (gpu::Device* const other : gpus) {
      EMBLA_RETURN_IF_ERROR(reader->EnableAccessTo(*other));
    }
  }
  const auto size = static_cast<std::uint32_t>(gpus.size());
  const auto window = std::make_shared<Window>(size);
  std::vector<std::unique_ptr<GpuExchange>> ranks;
  for (std::uint32_t r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<PeerExchange>(r, gpus[r]->kernels(), window));
  }
  return ranks;
}

}  // namespace embla
