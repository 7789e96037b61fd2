#include "bench/peers/driver_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <iostream>
#include <mutex>
#include <sstream>

namespace embla::peers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kVerifyGradient = 0.5F;
// Gradients are small enough that no number of updates drives a table to infinity.
constexpr float kTimedGradient = 1e-4F;

double SecondsSince(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

// Keeps a number of requests in flight and times each of them.
class Load {
 public:
  Load(const Shape& shape, const Requests& requests, Peer& peer, std::size_t in_flight)
      : requests_(requests), peer_(peer), slots_(in_flight), started_(in_flight) {
    const std::size_t floats = shape.ids_per_request() / shape.bag * shape.dim;
    for (std::size_t i = 0; i < in_flight; ++i) {
      slots_[i].gradients.assign(floats, kTimedGradient);
      slots_[i].done = [this, i] { End(i); };
      free_.push_back(i);
    }
  }

  void Run(Operation operation, double seconds) {
    const Clock::time_point began = Clock::now();
    do {
      const std::size_t number = AwaitFree();
      started_[number] = Clock::now();
      peer_.Begin(operation, requests_.RowsOf(next_++), slots_[number]);
    } while (SecondsSince(began) < seconds);
    Await(slots_.size());
    seconds_ = SecondsSince(began);
  }

  Slot& slot() { return slots_.front(); }
  double requests_per_second() const { return static_cast<double>(latencies_.size()) / seconds_; }
  double MedianSeconds() {
    const auto middle = latencies_.begin() + static_cast<std::ptrdiff_t>(latencies_.size() / 2);
    std::ranges::nth_element(latencies_, middle);
    return *middle;
  }

 private:
  void End(std::size_t number) {
    const double latency = SecondsSince(started_[number]);
    const std::lock_guard lock(mu_);
    latencies_.push_back(latency);
    free_.push_back(number);
    changed_.notify_one();
  }

  void Await(std::size_t free_min) {
    const auto is_free = [this, free_min] { return free_.size() >= free_min; };
    while (true) {
      {
        const std::lock_guard lock(mu_);
        if (is_free()) return;
      }
      if (peer_.EndOne()) continue;
      std::unique_lock lock(mu_);
      changed_.wait(lock, is_free);
    }
  }

  std::size_t AwaitFree() {
    Await(1);
    const std::lock_guard lock(mu_);
    const std::size_t number = free_.front();
    free_.pop_front();
    return number;
  }

  const Requests& requests_;
  Peer& peer_;
  std::vector<Slot> slots_;
  std::vector<Clock::time_point> started_;
  std::size_t next_ = 0;
  double seconds_ = 0.0;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::size_t> free_;   // Guarded by mu_.
  std::vector<double> latencies_;  // Guarded by mu_ while requests are in flight.
};

// Asks one request, the first, and returns its slot's result.
std::vector<float> AskOnce(const Shape& shape, const Requests& requests, Peer& peer,
                           Operation operation) {
  Load load(shape, requests, peer, 1);
  std::ranges::fill(load.slot().gradients, kVerifyGradient);
  load.Run(operation, 0.0);
  return load.slot().result;
}

// The initial values, summed by bag.
std::vector<float> InitialResult(const Shape& shape, std::span<const std::uint64_t> rows) {
  std::vector<float> result(rows.size() / shape.bag * shape.dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int j = 0; j < shape.dim; ++j) {
      result[i / shape.bag * shape.dim + j] += InitialValue(rows[i], j);
    }
  }
  return result;
}

// Applies to `result` what one update by kVerifyGradient does to the rows of each bag.
void Expect(Operation operation, const Shape& shape, std::span<const std::uint64_t> rows,
            std::vector<float>& result) {
  std::vector<std::uint64_t> sorted(rows.begin(), rows.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto equal = std::ranges::equal_range(sorted, rows[i]);
    // Row-wise Adagrad's first step is the gradient's sign, however often a row is in a request.
    const float step =
        operation == Operation::kSgd ? kVerifyGradient * static_cast<float>(equal.size()) : 1.0F;
    for (int j = 0; j < shape.dim; ++j) {
      result[i / shape.bag * shape.dim + j] -= kLearningRate * step;
    }
  }
}

bool IsNear(const Shape& shape, const std::vector<float>& got, const std::vector<float>& expected) {
  const float allowed = (shape.is_bf16 ? 1e-3F : 1e-5F) * static_cast<float>(shape.bag);
  if (got.size() != expected.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    // A row of a hot id has moved by far more than an initial value.
    if (!(std::abs(got[i] - expected[i]) <= allowed * (1.0F + std::abs(expected[i])))) return false;
  }
  return true;
}

// Empty: the peer does what it is asked.
std::string Verify(const Shape& shape, const Requests& requests, Peer& peer) {
  const std::span<const std::uint64_t> rows = requests.RowsOf(0);
  std::vector<float> expected = InitialResult(shape, rows);
  for (const Operation operation : peer.Operations()) {
    if (operation != Operation::kLookup) {
      AskOnce(shape, requests, peer, operation);
      Expect(operation, shape, rows, expected);
    }
    if (!IsNear(shape, AskOnce(shape, requests, peer, Operation::kLookup), expected)) {
      return operation == Operation::kLookup ? "a lookup has wrong rows"
                                             : "an update left wrong rows";
    }
  }
  return "";
}

bool ParseOperation(const std::string& name, Operation& operation) {
  if (name == "lookup") {
    operation = Operation::kLookup;
  } else if (name == "sgd") {
    operation = Operation::kSgd;
  } else if (name == "rowwise_adagrad") {
    operation = Operation::kRowwiseAdagrad;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int ServeCases(const Shape& shape, Peer& peer) {
  const Requests requests(shape);
  const std::string wrong = Verify(shape, requests, peer);
  if (!wrong.empty()) {
    std::cerr << wrong << "\n";
    return 1;
  }
  std::cout << "READY" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string keyword;
    std::string name;
    std::size_t in_flight = 0;
    double seconds = 0.0;
    Operation operation = Operation::kLookup;
    if (!(words >> keyword >> name >> in_flight >> seconds) || keyword != "CASE" ||
        in_flight == 0 || !ParseOperation(name, operation)) {
      std::cerr << "not a case: " << line << "\n";
      return 2;
    }
    Load(shape, requests, peer, in_flight).Run(operation, seconds / 4);  // Warms up.
    Load load(shape, requests, peer, in_flight);
    load.Run(operation, seconds);
    std::printf("{\"rows_per_second\": %.1f, \"p50_ms\": %.4f}\n",
                load.requests_per_second() * static_cast<double>(shape.ids_per_request()),
                load.MedianSeconds() * 1e3);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace embla::peers
