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

// In progress is no error: it is waited for.
absl::Status Check(NcclLibrary& nccl, int result, const char* what) {
  if (result == kNcclSuccess || result == kNcclInProgress) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("NCCL: ", what, ": ", nccl.ErrorText(result)));
}

// Between two looks at what cannot be waited for.
class Pause {
 public:
  void Wait() {
    if (++looks_ < kLooksWithoutSleep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  int looks_ = 0;
};

using Deadline = std::chrono::steady_clock::time_point;

Deadline After(absl::Duration timeout) {
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

class NcclExchange final : public GpuExchange {
 public:
  NcclExchange(gpu::Device& device, NcclLibrary& nccl, const NcclOptions& options,
               std::shared_ptr<std::atomic<bool>> aborted, std::shared_ptr<gpu::ExchangeGate> gate)
      : device_(device),
        nccl_(nccl),
        options_(options),
        aborted_(std::move(aborted)),
        gate_(std::move(gate)) {}

  ~NcclExchange() override {
    if (comm_ != nullptr) nccl_.CommAbort(comm_);
  }

  // Inside of a group, in which every rank connects.
  absl::Status Connect(const NcclId& id, int ranks, int rank) {
    EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
    NcclConfig config;
    return Check(nccl_, nccl_.CommInitRankConfig(&comm_, ranks, id, rank, &config),
                 "connecting the GPUs");
  }
  // Waits until all ranks are connected; called after the group has ended.
  absl::Status AwaitConnection(Deadline deadline) {
    Pause pause;
    for (;; pause.Wait()) {
      EMBLA_ASSIGN_OR_RETURN(const bool done, IsIdle("connecting the GPUs"));
      if (done) return absl::OkStatus();
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::UnavailableError(absl::StrCat("NCCL has not connected the GPUs within ",
                                                   absl::FormatDuration(options_.timeout)));
      }
    }
  }

  absl::Status Exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives,
                        gpu::Stream& stream) override {
    if (comm_ == nullptr) return Left();
    EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
    const gpu::ExchangeGate::Exchange exchange(*gate_);
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

  // Whether NCCL's host has nothing under way.
  absl::StatusOr<bool> IsIdle(const char* what) {
    int error = kNcclSuccess;
    EMBLA_RETURN_IF_ERROR(
        Check(nccl_, nccl_.CommGetAsyncError(comm_, &error), "CommGetAsyncError"));
    EMBLA_RETURN_IF_ERROR(Check(nccl_, error, what));
    return error == kNcclSuccess;
  }

  // The host first: until it is done, nothing of the exchange need be on the stream.
  absl::Status Await(gpu::Stream& stream) {
    const Deadline deadline = After(options_.timeout);
    bool is_queued = false;
    Pause pause;
    for (;; pause.Wait()) {
      EMBLA_ASSIGN_OR_RETURN(const bool idle, IsIdle("while GPUs exchange rows"));
      is_queued = is_queued || idle;
      if (is_queued) {
        EMBLA_ASSIGN_OR_RETURN(const bool done, stream.IsDone());
        if (done) return absl::OkStatus();
      }
      if (aborted_->load(std::memory_order_relaxed)) return Left();
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::AbortedError(
            absl::StrCat("the other GPUs of this node did not come to an exchange within ",
                         absl::FormatDuration(options_.timeout)));
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
  // Shared by all ranks. Relaxed: it carries no other data.
  const std::shared_ptr<std::atomic<bool>> aborted_;
  const std::shared_ptr<gpu::ExchangeGate> gate_;  // Shared by all ranks, and by their GPUs.
  NcclComm comm_ = nullptr;                        // Null once this rank has left.
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
  // A rank that is missing from the group would be waited for.
  for (gpu::Device* const device : gpus) EMBLA_RETURN_IF_ERROR(device->MakeCurrent());
  NcclId id{};
  EMBLA_RETURN_IF_ERROR(Check(nccl, nccl.GetUniqueId(&id), "GetUniqueId"));
  const auto aborted = std::make_shared<std::atomic<bool>>(false);
  const auto gate = std::make_shared<gpu::ExchangeGate>();
  for (gpu::Device* const device : gpus) device->KeepApart(gate);
  std::vector<std::unique_ptr<NcclExchange>> ranks;
  // Grouped, since connecting a rank waits for all others.
  EMBLA_RETURN_IF_ERROR(Check(nccl, nccl.GroupStart(), "GroupStart"));
  absl::Status status;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    auto rank = std::make_unique<NcclExchange>(*gpus[r], nccl, options, aborted, gate);
    status.Update(rank->Connect(id, static_cast<int>(gpus.size()), static_cast<int>(r)));
    ranks.push_back(std::move(rank));
  }
  status.Update(Check(nccl, nccl.GroupEnd(), "connecting the GPUs"));
  const Deadline deadline = After(options.timeout);
  for (const auto& rank : ranks) {
    if (status.ok()) status = rank->AwaitConnection(deadline);
  }
  EMBLA_RETURN_IF_ERROR(status);
  return std::vector<std::unique_ptr<GpuExchange>>(std::make_move_iterator(ranks.begin()),
                                                   std::make_move_iterator(ranks.end()));
}

}  // namespace embla
