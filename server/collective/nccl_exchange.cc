#include "server/collective/nccl_exchange.h"

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// Exchanges take tens of microseconds; later the thread sleeps between two looks.
constexpr int kLooksWithoutSleep = 1000;
constexpr std::chrono::microseconds kSleep(50);

absl::Status Check(NcclLibrary& nccl, int result, const char* what) {
  if (result == kNcclSuccess || result == kNcclInProgress) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("NCCL: ", what, ": ", nccl.ErrorText(result)));
}

class NcclExchange final : public GpuExchange {
 public:
  NcclExchange(gpu::Device& device, NcclLibrary& nccl, const NcclOptions& options,
               std::shared_ptr<std::atomic<bool>> aborted)
      : device_(device), nccl_(nccl), options_(options), aborted_(std::move(aborted)) {}

  ~NcclExchange() override {
    if (comm_ == nullptr) return;
    // Destroying waits for the other ranks, which may be gone.
    if (!device_.MakeCurrent().ok() || aborted_->load(std::memory_order_relaxed)) {
      nccl_.CommAbort(comm_);
    } else {
      nccl_.CommDestroy(comm_);
    }
  }

  absl::Status Connect(const NcclId& id, int ranks, int rank) {
    EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
    return Check(nccl_, nccl_.CommInitRank(&comm_, ranks, id, rank), "connecting the GPUs");
  }

  absl::Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                        gpu::Stream& stream) override {
    if (comm_ == nullptr) return Left();
    EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
    absl::Status status = Queue(sends, receives, stream);
    if (status.ok()) status = Await(stream);
    if (!status.ok()) Leave();
    return status;
  }

  // The rank's own thread leaves NCCL when it sees this.
  void Abort() override { aborted_->store(true, std::memory_order_relaxed); }

 private:
  static absl::Status Left() {
    return absl::AbortedError("a device of this node has left the collective");
  }

  absl::Status Queue(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                     gpu::Stream& stream) {
    EMBLA_RETURN_IF_ERROR(Check(nccl_, nccl_.GroupStart(), "GroupStart"));
    absl::Status status;
    for (std::size_t r = 0; r < sends.size(); ++r) {
      const int peer = static_cast<int>(r);
      if (sends[r].count > 0) {
        status.Update(Check(
            nccl_,
            nccl_.Send(sends[r].data, sends[r].count, kNcclFloat32, peer, comm_, stream.handle()),
            "Send"));
      }
      if (receives[r].count > 0) {
        status.Update(Check(nccl_,
                            nccl_.Recv(receives[r].data, receives[r].count, kNcclFloat32, peer,
                                       comm_, stream.handle()),
                            "Recv"));
      }
    }
    // Also after an error: a group stays open otherwise.
    status.Update(Check(nccl_, nccl_.GroupEnd(), "GroupEnd"));
    return status;
  }

  absl::Status Await(gpu::Stream& stream) {
    const auto deadline =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.timeout);
    for (int look = 0;; ++look) {
      EMBLA_ASSIGN_OR_RETURN(const bool done, stream.IsDone());
      if (done) return absl::OkStatus();
      int error = kNcclSuccess;
      EMBLA_RETURN_IF_ERROR(
          Check(nccl_, nccl_.CommGetAsyncError(comm_, &error), "CommGetAsyncError"));
      EMBLA_RETURN_IF_ERROR(Check(nccl_, error, "while GPUs exchange rows"));
      if (aborted_->load(std::memory_order_relaxed)) return Left();
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::AbortedError(
            absl::StrCat("the other GPUs of this node did not come to an exchange within ",
                         absl::FormatDuration(options_.timeout)));
      }
      if (look < kLooksWithoutSleep) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kSleep);
      }
    }
  }

  // Ends what the GPU still waits for.
  void Leave() {
    aborted_->store(true, std::memory_order_relaxed);
    LogError("collective", "left NCCL gpu=", device_.properties().ordinal);
    nccl_.CommAbort(std::exchange(comm_, nullptr));
  }

  gpu::Device& device_;  // Not owned; outlives this object, like
  NcclLibrary& nccl_;    // this.
  const NcclOptions options_;
  // Of all ranks. Relaxed: it carries no other data.
  const std::shared_ptr<std::atomic<bool>> aborted_;
  NcclComm comm_ = nullptr;  // Null once this rank has left.
};

absl::Status CheckDistinct(std::span<gpu::Device* const> gpus) {
  std::set<std::string> seen;
  for (const gpu::Device* const device : gpus) {
    if (seen.insert(device->properties().bus_id).second) continue;
    return absl::FailedPreconditionError(absl::StrCat("NCCL takes every GPU once, and GPU ",
                                                      device->properties().ordinal,
                                                      " is several devices of this node"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<GpuExchange>>> MakeNcclExchanges(
    std::span<gpu::Device* const> gpus, NcclLibrary& nccl, const NcclOptions& options) {
  EMBLA_RETURN_IF_ERROR(CheckDistinct(gpus));
  NcclId id{};
  EMBLA_RETURN_IF_ERROR(Check(nccl, nccl.GetUniqueId(&id), "GetUniqueId"));
  const auto aborted = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<GpuExchange>> ranks;
  // As one group: connecting a rank waits for all others.
  EMBLA_RETURN_IF_ERROR(Check(nccl, nccl.GroupStart(), "GroupStart"));
  absl::Status status;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    auto rank = std::make_unique<NcclExchange>(*gpus[r], nccl, options, aborted);
    status.Update(rank->Connect(id, static_cast<int>(gpus.size()), static_cast<int>(r)));
    ranks.push_back(std::move(rank));
  }
  status.Update(Check(nccl, nccl.GroupEnd(), "connecting the GPUs"));
  if (!status.ok()) {
    aborted->store(true, std::memory_order_relaxed);
    return status;
  }
  return ranks;
}

}  // namespace embla
