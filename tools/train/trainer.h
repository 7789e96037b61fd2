// One trainer: takes mini-batches through lookup, gradient and update.
//
// Asynchronous (the default): the lookup of the next batch is on its way while this batch is
// computed, and up to `updates_in_flight` updates are not acknowledged yet. A batch may therefore
// miss the updates of the batch before it (staleness 1) and of those in flight, here and in other
// trainers. Synchronous: each update is acknowledged before the next lookup starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "tools/train/batch.h"

namespace embla::train {

struct TrainerOptions {
  Loss loss = Loss::kLogistic;
  double prior = 0.0;
  std::size_t batch = 1024;
  // Gradients are of the sum of the batch's losses, so that --lr means the same for any batch size
  // and one example; `mean` divides by the batch size, as many frameworks do. Adagrad and Adam
  // hardly see the difference; sgd does.
  bool gradient_mean = false;
  bool synchronous = false;
  std::size_t updates_in_flight = 2;
  client::WireFormat wire = client::WireFormat::kFp32;
  // For how long lookups are repeated while a node is away. Zero: the first failure is final.
  absl::Duration patience = absl::Seconds(60);
  absl::Duration first_pause = absl::Milliseconds(100);  // Doubles up to 2 s.
};

// True when the same call may succeed later.
bool IsTransient(const absl::Status& status);

// Thread safety: Run and Predict, one thread at a time.
class Trainer {
 public:
  using ProgressCallback = std::function<void(std::size_t examples, double loss_sum)>;

  // `client`, `layout` and `stop` are not owned; they outlive this object. Run ends early, without
  // an error, once `stop` is true.
  Trainer(client::Client& client, const ModelLayout& layout, const TrainerOptions& options,
          const std::atomic<bool>& stop);
  ~Trainer();

  // Trains on examples[order[0]], examples[order[1]], ... and waits for all updates.
  // Aborted: the loss is not finite. Otherwise errors of Client::Lookup and Update.
  absl::Status Run(const Examples& examples, std::span<const std::uint32_t> order,
                   const ProgressCallback& progress);

  // scores_out[i] = score of examples[order[i]]. Changes no table.
  absl::Status Predict(const Examples& examples, std::span<const std::uint32_t> order,
                       std::span<float> scores_out);

  // Updates whose outcome is unknown because a node went away; their batches may be lost.
  std::uint64_t updates_unknown() const { return updates_unknown_; }

 private:
  struct Slot {
    Slot(const ModelLayout& layout, SlotFinder& finder) : batch(layout, finder) {}
    Batch batch;
    PendingCall lookup;
    PendingCall update;
  };

  Slot& SlotOf(std::size_t number) { return *slots_[number % slots_.size()]; }
  // Waits for the slot's former update and starts the lookup of this batch.
  absl::Status Begin(Slot& slot, const Examples& examples, std::span<const std::uint32_t> order);
  absl::Status AwaitLookup(Slot& slot);
  absl::Status AwaitUpdate(Slot& slot);
  absl::Status Step(Slot& slot, const ProgressCallback& progress);
  absl::Status Drain(absl::Status status);
  absl::Status RunBatches(const Examples& examples, std::span<const std::uint32_t> order,
                          const ProgressCallback& progress);
  absl::Status PredictBatches(const Examples& examples, std::span<const std::uint32_t> order,
                              std::span<float> scores_out);

  client::Client& client_;
  const TrainerOptions options_;
  const std::atomic<bool>& stop_;
  SlotFinder finder_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::uint64_t updates_unknown_ = 0;
};

}  // namespace embla::train
