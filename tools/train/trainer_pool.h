// The trainers of one process, one thread each, working on the same examples.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/train/progress.h"
#include "tools/train/trainer.h"

namespace embla::train {

// Thread safety: one thread at a time.
class TrainerPool {
 public:
  // One trainer per client. Nothing is owned; all of it outlives this object.
  TrainerPool(std::span<client::Client* const> clients, const ModelLayout& layout,
              const TrainerOptions& options, Progress& progress);

  // Trains on the examples of `order`, cut into equal parts. The first error stops all trainers.
  absl::Status Train(const Examples& examples, std::span<const std::uint32_t> order);

  // Scores of all examples, in their order.
  absl::Status Predict(const Examples& examples, std::span<float> scores_out);

  // Averages the replica groups of the model's tables; those without groups stay as they are.
  absl::Status SyncTables();

  std::uint64_t updates_unknown() const;
  const ModelLayout& layout() const { return layout_; }
  Loss loss() const { return loss_; }

 private:
  using Work = std::function<absl::Status(Trainer& trainer, std::size_t begin, std::size_t end)>;
  // Runs `work` in every trainer with its part of 0..count and draws progress meanwhile.
  absl::Status RunAll(std::size_t count, const Work& work);

  client::Client& first_client_;
  const ModelLayout& layout_;
  const Loss loss_;
  Progress& progress_;
  std::atomic<bool> stop_ = false;  // Relaxed: it only ends work early.
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

}  // namespace embla::train
