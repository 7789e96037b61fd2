// The C++ side of overhead.py: the same lookups and updates by the C++ client, a round per line of
// the standard input, so that rounds of both sides alternate.
//
//   client_calls COORDINATOR TABLE_PREFIX FEATURES DIM BAGS IDS_PER_BAG CALLS
//
// Each round prints nanoseconds per call, of a lookup and of an update each: processor time of the
// thread that calls, of the whole process with its threads for replies, and wall time. Calls are
// started and awaited, as Python does it.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "embla/client.h"

namespace {

using embla::client::CallOptions;
using embla::client::Client;
using embla::client::FeatureGradient;
using embla::client::FeatureLookup;
using embla::client::Pooling;

double Nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << "\n";
  std::exit(1);
}

// Waits for the call that `start` starts with a callback.
template <typename Start>
absl::Status Await(Start start) {
  std::promise<absl::Status> done;
  start([&done](absl::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

constexpr std::array kClocks = {CLOCK_THREAD_CPUTIME_ID, CLOCK_PROCESS_CPUTIME_ID, CLOCK_MONOTONIC};
using Times = std::array<double, kClocks.size()>;

// Returns each clock's time per call of `calls` calls.
template <typename Call>
Times Measure(int calls, Call call) {
  Times times{};
  for (std::size_t c = 0; c < kClocks.size(); ++c) times[c] = -Nanoseconds(kClocks[c]);
  for (int i = 0; i < calls; ++i) Require(call());
  for (std::size_t c = 0; c < kClocks.size(); ++c) times[c] += Nanoseconds(kClocks[c]);
  for (double& time : times) time /= calls;
  return times;
}

struct Batch {
  Batch(std::size_t features, std::size_t dim, std::size_t bags, std::size_t ids_per_bag)
      : lengths(bags, static_cast<std::uint32_t>(ids_per_bag)), rows(bags * features * dim, 1e-6f) {
    const std::size_t count = bags * ids_per_bag;
    for (std::size_t i = 0; i < features * count; ++i) {
      ids.push_back(static_cast<std::int64_t>(i * 7919 % 10'000));
    }
  }
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> rows;  // Also the gradients.
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::string prefix = argv[2];
  const std::size_t features = std::stoul(argv[3]), dim = std::stoul(argv[4]),
                    bags = std::stoul(argv[5]), ids_per_bag = std::stoul(argv[6]);
  const int calls = std::stoi(argv[7]);
  auto client = Client::Connect({.coordinator = argv[1]});
  Require(client.status());
  Batch batch(features, dim, bags, ids_per_bag);
  std::vector<std::string> tables;
  for (std::size_t f = 0; f < features; ++f) tables.push_back(prefix + std::to_string(f));
  std::vector<FeatureLookup> lookups;
  std::vector<FeatureGradient> gradients;
  const std::size_t stride = features * dim;
  for (std::size_t f = 0; f < features; ++f) {
    const auto ids = std::span<const std::int64_t>(batch.ids).subspan(f * bags * ids_per_bag,
                                                                      bags * ids_per_bag);
    const auto rows = std::span(batch.rows).subspan(f * dim, (bags - 1) * stride + dim);
    lookups.push_back({.table = tables[f],
                       .ids = ids,
                       .lengths = batch.lengths,
                       .pooling = Pooling::kSum,
                       .rows_out = rows,
                       .rows_out_stride = stride});
    gradients.push_back({.table = tables[f],
                         .ids = ids,
                         .lengths = batch.lengths,
                         .pooling = Pooling::kSum,
                         .gradients = rows,
                         .gradients_stride = stride});
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto lookup = Measure(calls, [&] {
      return Await([&](auto done) { (*client)->LookupAsync(lookups, CallOptions{}, done); });
    });
    std::fill(batch.rows.begin(), batch.rows.end(), 1e-6f);
    const auto update = Measure(calls, [&] {
      return Await([&](auto done) { (*client)->UpdateAsync(gradients, CallOptions{}, done); });
    });
    for (std::size_t c = 0; c < kClocks.size(); ++c) {
      std::cout << lookup[c] << " " << update[c] << " ";
    }
    std::cout << std::endl;
  }
  return 0;
}
