#include "server/collective/gpu_communicator.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/collective/meeting.h"
#include "server/collective/nccl_exchange.h"
#include "server/collective/peer_exchange.h"
#include "server/gpu/kernel_table.h"

namespace embla {
namespace {

using Verb = Contribution::Verb;

// Memory of a rank, on its GPU and pinned on the host, of at least as many floats as the largest
// verb so far needed.
class RankMemory {
 public:
  explicit RankMemory(gpu::Device& device) : device_(device) {}

  absl::Status Reserve(std::size_t host_floats, std::size_t device_floats) {
    if (host_.size() < host_floats * sizeof(float)) {
      EMBLA_ASSIGN_OR_RETURN(host_, device_.AllocatePinned(host_floats * sizeof(float)));
    }
    if (on_device_.size() < device_floats * sizeof(float)) {
      EMBLA_ASSIGN_OR_RETURN(on_device_, device_.Allocate(device_floats * sizeof(float)));
    }
    return absl::OkStatus();
  }
  float* host() const { return host_.As<float>(); }
  float* device() const { return on_device_.As<float>(); }

 private:
  gpu::Device& device_;  // Not owned; outlives this object.
  gpu::PinnedMemory host_;
  gpu::DeviceMemory on_device_;
};

// Borders of `count` floats that `ranks` ranks share evenly.
std::vector<std::size_t> EvenCounts(std::size_t count, std::uint32_t ranks) {
  std::vector<std::size_t> counts(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    counts[r] = count * (r + 1) / ranks - count * r / ranks;
  }
  return counts;
}

class GpuCommunicator final : public Communicator {
 public:
  GpuCommunicator(Seat seat, gpu::Device& device, std::unique_ptr<gpu::Stream> stream,
                  std::unique_ptr<GpuExchange> exchange)
      : seat_(std::move(seat)),
        kernels_(device.kernels()),
        memory_(device),
        stream_(std::move(stream)),
        exchange_(std::move(exchange)) {}

  std::uint32_t rank() const override { return seat_.rank(); }
  std::uint32_t size() const override { return seat_.size(); }

  absl::Status Barrier() override {
    EMBLA_RETURN_IF_ERROR(seat_.Publish({.verb = Verb::kBarrier}));
    return seat_.Finish(seat_.CheckSameVerb());
  }

  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    return MaxOfAll(seat_, in, out);
  }

  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override;
  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override;
  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override;
  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out, std::span<const std::size_t> receive_counts) override;

  void Abort() override {
    seat_.meeting().Abort();
    exchange_->Abort();
  }

 private:
  // Offsets of a verb's parts on the GPU, in floats: input, received parts, result.
  struct Shape {
    std::size_t in = 0;
    std::size_t received = 0;
    std::size_t out = 0;
  };

  // Until all ranks know that all of them can go on; `check` looks at all contributions.
  template <typename Check>
  absl::Status Agree(const Contribution& contribution, const Shape& shape, const Check& check);
  // `work` is the part in which ranks wait for one another's GPUs. One that fails there leaves for
  // good, so that the others do not wait for it.
  template <typename Work>
  absl::Status Run(const Work& work);

  absl::Status Send(std::span<const float> in);
  absl::Status Fetch(const float* from, std::span<float> out);
  // Sends every rank its piece of `in`; pieces for this one arrive at received(), in rank order.
  absl::Status Scatter(const float* in, std::span<const std::size_t> counts, std::size_t mine);
  // Adds up the pieces at received().
  absl::Status Sum(std::size_t mine, float* out);
  // Sends `in` to every rank; what they send becomes `out`, in rank order.
  absl::Status Gather(const float* in, std::span<const std::size_t> counts, float* out);

  float* in() const { return memory_.device(); }
  float* received() const { return in() + shape_.in; }
  float* result() const { return received() + shape_.received; }

  const Seat seat_;
  const gpu::KernelTable& kernels_;  // Not owned; outlives this object.
  RankMemory memory_;
  const std::unique_ptr<gpu::Stream> stream_;
  const std::unique_ptr<GpuExchange> exchange_;
  Shape shape_;  // Shape of the verb in progress.
};

template <typename Check>
absl::Status GpuCommunicator::Agree(const Contribution& contribution, const Shape& shape,
                                    const Check& check) {
  shape_ = shape;
  absl::Status mine =
      memory_.Reserve(std::max(shape.in, shape.out), shape.in + shape.received + shape.out);
  if (mine.ok()) mine = Send(contribution.in);
  EMBLA_RETURN_IF_ERROR(seat_.Publish(contribution));
  const absl::Status checked = check();
  // Errors of the call come first: they are the same on many ranks.
  absl::Status& shown = seat_.meeting().contribution(rank()).status;
  shown = checked.ok() ? mine : checked;
  EMBLA_RETURN_IF_ERROR(seat_.meeting().Wait());
  absl::Status verdict = shown;
  for (std::uint32_t r = 0; verdict.ok() && r < size(); ++r) {
    const absl::Status& theirs = seat_.At(r).status;
    if (theirs.ok()) continue;
    verdict = absl::Status(theirs.code(), absl::StrCat("rank ", r, ": ", theirs.message()));
  }
  // A rank's status stays as it is until all have read it.
  return seat_.Finish(verdict);
}

template <typename Work>
absl::Status GpuCommunicator::Run(const Work& work) {
  const absl::Status status = work();
  if (!status.ok()) {
    Abort();
    return status;
  }
  return seat_.meeting().Wait();
}

absl::Status GpuCommunicator::Send(std::span<const float> in) {
  std::copy(in.begin(), in.end(), memory_.host());
  return stream_->CopyToDevice(memory_.device(), memory_.host(), in.size_bytes());
}

absl::Status GpuCommunicator::Fetch(const float* from, std::span<float> out) {
  EMBLA_RETURN_IF_ERROR(stream_->CopyToHost(memory_.host(), from, out.size_bytes()));
  EMBLA_RETURN_IF_ERROR(stream_->Synchronize());
  std::copy_n(memory_.host(), out.size(), out.begin());
  return absl::OkStatus();
}

absl::Status GpuCommunicator::Scatter(const float* in, std::span<const std::size_t> counts,
                                      std::size_t mine) {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
  for (std::uint32_t r = 0; r < size(); ++r) {
    sends.push_back({in + Before(counts, r), counts[r]});
    receives.push_back({received() + r * mine, mine});
  }
  return exchange_->Exchange(sends, receives, *stream_);
}

absl::Status GpuCommunicator::Sum(std::size_t mine, float* out) {
  std::vector<const float*> pieces;
  for (std::uint32_t r = 0; r < size(); ++r) pieces.push_back(received() + r * mine);
  return stream_->Queue("SumInOrder", [sum = kernels_.sum_in_order, pieces = std::move(pieces),
                                       mine, out](void* handle) {
    return sum(pieces.data(), pieces.size(), mine, out, handle);
  });
}

absl::Status GpuCommunicator::Gather(const float* in, std::span<const std::size_t> counts,
                                     float* out) {
  std::vector<SendPiece> sends(size(), {in, counts[rank()]});
  std::vector<ReceivePiece> receives;
  for (std::uint32_t r = 0; r < size(); ++r) {
    receives.push_back({out + Before(counts, r), counts[r]});
  }
  return exchange_->Exchange(sends, receives, *stream_);
}

absl::Status GpuCommunicator::AllReduceSum(std::span<const float> in, std::span<float> out) {
  const std::vector<std::size_t> counts = EvenCounts(in.size(), size());
  const std::size_t mine = counts[rank()];
  EMBLA_RETURN_IF_ERROR(
      Agree({.verb = Verb::kAllReduceSum, .in = in}, {in.size(), mine * size(), out.size()}, [&] {
        absl::Status status = seat_.CheckSameVerb();
        status.Update(
            seat_.CheckInputs("AllReduceSum input", [&](std::uint32_t) { return out.size(); }));
        return status;
      }));
  return Run([&]() -> absl::Status {
    EMBLA_RETURN_IF_ERROR(Scatter(this->in(), counts, mine));
    EMBLA_RETURN_IF_ERROR(Sum(mine, this->in()));
    EMBLA_RETURN_IF_ERROR(Gather(this->in(), counts, result()));
    return Fetch(result(), out);
  });
}

absl::Status GpuCommunicator::ReduceScatterSum(std::span<const float> in,
                                               std::span<const std::size_t> counts,
                                               std::span<float> out) {
  EMBLA_RETURN_IF_ERROR(
      Agree({.verb = Verb::kReduceScatter, .in = in, .counts = counts},
            {in.size(), out.size() * size(), out.size()}, [&] {
              absl::Status status = seat_.CheckCounts(counts);
              status.Update(seat_.CheckInputs("ReduceScatterSum input",
                                              [&](std::uint32_t) { return Total(counts); }));
              if (!status.ok()) return status;
              return seat_.CheckSize("ReduceScatterSum output", rank(), out.size(), counts[rank()]);
            }));
  return Run([&]() -> absl::Status {
    EMBLA_RETURN_IF_ERROR(Scatter(this->in(), counts, out.size()));
    EMBLA_RETURN_IF_ERROR(Sum(out.size(), result()));
    return Fetch(result(), out);
  });
}

absl::Status GpuCommunicator::AllGather(std::span<const float> in,
                                        std::span<const std::size_t> counts, std::span<float> out) {
  EMBLA_RETURN_IF_ERROR(Agree(
      {.verb = Verb::kAllGather, .in = in, .counts = counts}, {in.size(), 0, out.size()}, [&] {
        absl::Status status = seat_.CheckCounts(counts);
        if (!status.ok()) return status;
        status = seat_.CheckInputs("AllGather input", [&](std::uint32_t r) { return counts[r]; });
        status.Update(seat_.CheckSize("AllGather output", rank(), out.size(), Total(counts)));
        return status;
      }));
  return Run([&]() -> absl::Status {
    EMBLA_RETURN_IF_ERROR(Gather(this->in(), counts, result()));
    return Fetch(result(), out);
  });
}

absl::Status GpuCommunicator::AllToAll(std::span<const float> in,
                                       std::span<const std::size_t> send_counts,
                                       std::span<float> out,
                                       std::span<const std::size_t> receive_counts) {
  EMBLA_RETURN_IF_ERROR(Agree({.verb = Verb::kAllToAll, .in = in, .counts = send_counts},
                              {in.size(), 0, out.size()},
                              [&] { return seat_.CheckAllToAll(out.size(), receive_counts); }));
  return Run([&]() -> absl::Status {
    std::vector<SendPiece> sends;
    std::vector<ReceivePiece> receives;
    for (std::uint32_t r = 0; r < size(); ++r) {
      sends.push_back({this->in() + Before(send_counts, r), send_counts[r]});
      receives.push_back({result() + Before(receive_counts, r), receive_counts[r]});
    }
    EMBLA_RETURN_IF_ERROR(exchange_->Exchange(sends, receives, *stream_));
    return Fetch(result(), out);
  });
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Join(
    std::span<gpu::Device* const> gpus, std::vector<std::unique_ptr<GpuExchange>> exchanges) {
  const auto meeting = std::make_shared<Meeting>(static_cast<std::uint32_t>(gpus.size()));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::uint32_t r = 0; r < gpus.size(); ++r) {
    EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Stream> stream, gpus[r]->NewStream());
    ranks.push_back(std::make_unique<GpuCommunicator>(Seat(r, meeting), *gpus[r], std::move(stream),
                                                      std::move(exchanges[r])));
  }
  return ranks;
}

absl::Status CheckSize(std::span<gpu::Device* const> gpus) {
  if (!gpus.empty() && gpus.size() <= kernels::cuda::kSumInputsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a communicator of ", gpus.size(), " GPUs, 1 to ",
                                                 kernels::cuda::kSumInputsMax, " are possible"));
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakePeerCommunicators(
    std::span<gpu::Device* const> gpus) {
  EMBLA_RETURN_IF_ERROR(CheckSize(gpus));
  EMBLA_ASSIGN_OR_RETURN(auto exchanges, MakePeerExchanges(gpus));
  return Join(gpus, std::move(exchanges));
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::span<gpu::Device* const> gpus, NcclLibrary& nccl, const NcclOptions& options) {
  EMBLA_RETURN_IF_ERROR(CheckSize(gpus));
  EMBLA_ASSIGN_OR_RETURN(auto exchanges, MakeNcclExchanges(gpus, nccl, options));
  return Join(gpus, std::move(exchanges));
}

}  // namespace embla
