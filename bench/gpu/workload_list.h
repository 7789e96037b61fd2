// The workloads that both GPU benches know. Where they come from: docs/benchmarks.md.
#pragma once

#include <algorithm>
#include <string>

#include "bench/gpu/options.h"
#include "bench/gpu/workload.h"

namespace embla::bench {

// About 2^20 ids, uniform over one table that no cache holds, in bags or (0) one by one.
inline Workload UniformIds(const GpuBenchOptions& options, std::uint32_t dim,
                           std::uint32_t bag_length,
                           kernels::Element element = kernels::Element::kFloat32) {
  Workload workload;
  workload.dim = dim;
  workload.element = element;
  workload.name = (bag_length == 0 ? "rows_" : "pool" + std::to_string(bag_length) + "_") +
                  (element == kernels::Element::kFloat32 ? "fp32_" : "bf16_") + std::to_string(dim);
  workload.rows = options.UniformRows(workload.row_bytes());
  workload.bags = (1u << 20) / std::max(bag_length, 1u);
  workload.bag_length = bag_length;
  return workload;
}

// DynamicEmb's benchmark, whose published times on an H100 include FBGEMM's.
inline Workload WorkloadA() {
  Workload workload;
  workload.name = "workload_a";
  workload.tables = 10;
  workload.rows = 1'677'721;
  workload.dim = 128;
  workload.bags = 104'857;
  workload.alpha = 1.05;
  return workload;
}

// FBGEMM's shape of 327,680 lookups: 32 tables, 512 bags of 20 ids each.
inline Workload Step327680() {
  Workload workload;
  workload.name = "step_327680";
  workload.tables = 32;
  workload.rows = 100'000;
  workload.dim = 128;
  workload.bags = 512;
  workload.bag_length = 20;
  return workload;
}

// Bound by launches, not by bytes.
inline Workload SmallTables(std::uint32_t tables) {
  Workload workload;
  workload.name = "small_" + std::to_string(tables);
  workload.tables = tables;
  workload.rows = 1000;
  workload.dim = 64;
  workload.bags = 512;
  workload.bag_length = 10;
  return workload;
}

}  // namespace embla::bench
