#include "tools/train/trainer_pool.h"

#include <numeric>
#include <thread>

#include "core/base/mutex.h"

namespace embla::train {
namespace {

constexpr absl::Duration kDrawInterval = absl::Milliseconds(200);

// Collects the results of threads; the first error counts.
class Finish {
 public:
  explicit Finish(std::size_t threads) : running_(threads) {}

  void Report(const absl::Status& status) {
    MutexLock lock(mu_);
    result_.Update(status);
    --running_;
    changed_.NotifyAll();
  }
  // False: some thread still runs after `timeout`.
  bool WaitFor(absl::Duration timeout) {
    MutexLock lock(mu_);
    if (running_ > 0) changed_.WaitFor(mu_, timeout);
    return running_ == 0;
  }
  absl::Status result() {
    MutexLock lock(mu_);
    return result_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::size_t running_ ABSL_GUARDED_BY(mu_);
  absl::Status result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

TrainerPool::TrainerPool(std::span<client::Client* const> clients, const ModelLayout& layout,
                         const TrainerOptions& options, Progress& progress)
    : first_client_(*clients.front()), layout_(layout), loss_(options.loss), progress_(progress) {
  for (client::Client* client : clients) {
    trainers_.push_back(std::make_unique<Trainer>(*client, layout, options, stop_));
  }
}

absl::Status TrainerPool::Train(const Examples& examples, std::span<const std::uint32_t> order) {
  const auto count = [this](std::size_t done, double loss) { progress_.Add(done, loss); };
  return RunAll(order.size(), [&](Trainer& trainer, std::size_t begin, std::size_t end) {
    return trainer.Run(examples, order.subspan(begin, end - begin), count);
  });
}

absl::Status TrainerPool::Predict(const Examples& examples, std::span<float> scores_out) {
  std::vector<std::uint32_t> order(examples.size());
  std::iota(order.begin(), order.end(), 0u);
  return RunAll(order.size(), [&](Trainer& trainer, std::size_t begin, std::size_t end) {
    return trainer.Predict(examples, std::span(order).subspan(begin, end - begin),
                           scores_out.subspan(begin, end - begin));
  });
}

absl::Status TrainerPool::RunAll(std::size_t count, const Work& work) {
  stop_ = false;
  Finish finish(trainers_.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    const std::size_t begin = count * i / trainers_.size();
    const std::size_t end = count * (i + 1) / trainers_.size();
    threads.emplace_back([&, i, begin, end] {
      const absl::Status status = work(*trainers_[i], begin, end);
      if (!status.ok()) stop_ = true;
      finish.Report(status);
    });
  }
  while (!finish.WaitFor(kDrawInterval)) progress_.Draw();
  threads.clear();
  return finish.result();
}

absl::Status TrainerPool::SyncTables() { return embla::train::SyncTables(layout_, first_client_); }

std::uint64_t TrainerPool::updates_unknown() const {
  return std::accumulate(
      trainers_.begin(), trainers_.end(), std::uint64_t{0},
      [](std::uint64_t sum, const auto& trainer) { return sum + trainer->updates_unknown(); });
}

}  // namespace embla::train
