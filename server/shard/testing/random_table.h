// Random choices that tests of clusters and of tables share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

#include "core/plan/table_spec.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::testing {

template <typename T>
T Pick(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

// 1 to 3 nodes of 1 to 4 devices of 1 or 2 threads.
inline LocalCluster::Options RandomCluster(std::uint32_t seed, std::mt19937& random) {
  LocalCluster::Options options;
  options.nodes = 1 + random() % 3;
  options.devices_per_node = 1 + random() % 4;
  options.threads_per_device = 1 + random() % 2;
  options.seed = seed;
  // Half of the clusters have GPUs, beside CPU devices of the same node and of others. Half of
  // those have room for a fifth of the rows only.
  if (seed % 2 == 0) {
    if (seed % 4 == 0) options.gpu_cache_bytes = static_cast<std::size_t>(options.device_bytes / 5);
    options.is_gpu = [seed](std::uint32_t node, std::uint32_t device) {
      return (seed / 2 + node + device) % 3 != 0;
    };
  }
  return options;
}

// Any number format, rounding and optimizer; the shape is the caller's.
inline TableSpec RandomNumerics(std::mt19937& random) {
  TableSpec spec;
  spec.dtype = Pick(random, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  spec.rounding = Pick(random, {Rounding::kNearest, Rounding::kStochastic});
  spec.seed = random();
  spec.optimizer.kind = kOptimizerKinds[random() % kOptimizerKinds.size()];
  spec.optimizer.learning_rate = 0.05f;
  return spec;
}

}  // namespace embla::testing
