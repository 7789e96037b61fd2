#include "tools/load/runner.h"

#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla::load {
namespace {

using Ticks = std::chrono::steady_clock;

// Gradients small enough that no number of rounds drives a table to infinity.
constexpr float kGradientMax = 1e-3f;

}  // namespace

// One client. Its thread starts requests; replies come on the client's own threads.
class Runner::Driver {
 public:
  Driver(const Case& load, client::Client& client, const RequestSet& requests, std::uint64_t seed)
      : load_(load), client_(client), requests_(requests), random_(seed) {
    options_.wire = load.wire;
    options_.combine_duplicates = load.combine_duplicates;
    std::uniform_real_distribution<float> uniform(-kGradientMax, kGradientMax);
    gradients_.resize(requests.row_floats());
    for (float& gradient : gradients_) gradient = uniform(random_);
    slots_.resize(load.in_flight);
    for (Slot& slot : slots_) slot.rows.resize(requests.row_floats());
    next_request_ = random_() % 64;
  }

  absl::Status Run(int count) {
    {
      MutexLock lock(mu_);
      result_ = RoundResult{};
      status_ = absl::OkStatus();
      free_.clear();
      for (std::size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
    }
    for (int i = 0; i < count; ++i) {
      const std::size_t slot = AwaitFree();
      if (!status().ok()) {
        Release(slot);
        break;
      }
      Start(slot);
    }
    return AwaitAll();
  }

  RoundResult result() {
    MutexLock lock(mu_);
    return result_;
  }

 private:
  struct Slot {
    std::vector<float> rows;
    Ticks::time_point started;
    bool update = false;
  };

  void Start(std::size_t number) {
    Slot& slot = slots_[number];
    slot.update = std::uniform_real_distribution<double>()(random_) < load_.update_share;
    const std::size_t request = next_request_++;
    // One at a time is measured as it is written: by the blocking calls.
    const bool blocking = load_.in_flight == 1;
    slot.started = Ticks::now();
    const auto done = [this, number](const absl::Status& status) { Finish(number, status); };
    if (slot.update) {
      auto features = requests_.Update(request, gradients_);
      if (blocking) return done(client_.Update(features, options_));
      client_.UpdateAsync(std::move(features), options_, done);
    } else {
      auto features = requests_.Lookup(request, slot.rows);
      if (blocking) return done(client_.Lookup(features, options_));
      client_.LookupAsync(std::move(features), options_, done);
    }
  }

  void Finish(std::size_t number, const absl::Status& status) {
    const absl::Duration latency = absl::FromChrono(Ticks::now() - slots_[number].started);
    MutexLock lock(mu_);
    status_.Update(status);
    (slots_[number].update ? result_.updates : result_.lookups).Add(latency);
    ++result_.requests;
    free_.push_back(number);
    changed_.NotifyAll();
  }

  std::size_t AwaitFree() {
    MutexLock lock(mu_);
    while (free_.empty()) changed_.Wait(mu_);
    const std::size_t slot = free_.front();
    free_.pop_front();
    return slot;
  }

  void Release(std::size_t slot) {
    MutexLock lock(mu_);
    free_.push_back(slot);
  }

  absl::Status AwaitAll() {
    MutexLock lock(mu_);
    while (free_.size() < slots_.size()) changed_.Wait(mu_);
    return status_;
  }

  absl::Status status() {
    MutexLock lock(mu_);
    return status_;
  }

  const Case load_;
  client::Client& client_;
  const RequestSet& requests_;
  client::CallOptions options_;
  std::mt19937_64 random_;
  std::vector<float> gradients_;
  std::vector<Slot> slots_;  // A slot belongs to the request it was started for, else to free_.
  std::size_t next_request_ = 0;

  Mutex mu_;
  CondVar changed_;
  std::deque<std::size_t> free_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  RoundResult result_ ABSL_GUARDED_BY(mu_);
};

Runner::Runner(const Case& load, std::span<client::Client* const> clients,
               const RequestSet& requests, std::uint64_t seed) {
  for (std::size_t i = 0; i < clients.size(); ++i) {
    drivers_.push_back(std::make_unique<Driver>(load, *clients[i], requests, seed + i));
  }
}

Runner::~Runner() = default;

absl::StatusOr<RoundResult> Runner::Run(int count) {
  std::vector<absl::Status> statuses(drivers_.size());
  const Ticks::time_point began = Ticks::now();
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < drivers_.size(); ++i) {
      const int share =
          static_cast<int>(count * (i + 1) / drivers_.size() - count * i / drivers_.size());
      threads.emplace_back([this, i, share, &statuses] { statuses[i] = drivers_[i]->Run(share); });
    }
  }
  RoundResult total;
  total.seconds = absl::ToDoubleSeconds(absl::FromChrono(Ticks::now() - began));
  for (std::size_t i = 0; i < drivers_.size(); ++i) {
    if (!statuses[i].ok()) return statuses[i];
    const RoundResult part = drivers_[i]->result();
    total.requests += part.requests;
    total.lookups.Merge(part.lookups);
    total.updates.Merge(part.updates);
  }
  return total;
}

}  // namespace embla::load
