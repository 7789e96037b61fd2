// The planner's output: a choice per table, the loads of the machines, and a proof of how good it
// is. docs/planner.md explains the certificate.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/units.h"

namespace embla::planner {

// How `Choice::targets` reads.
enum class Placement : std::uint8_t {
  kShards = 0,  // targets[i] is the device of shard i (TW, CW, TWCW).
  kHosts = 1,   // targets[b] is the host of column block b, one shard on each device (TWRW, GRID).
  kEverywhere = 2,  // One shard on each allowed device (RW, DP); no targets.
};

struct Choice {
  Cut cut;
  Placement placement = Placement::kShards;
  absl::InlinedVector<std::uint32_t, 4> targets;  // Numbers of the problem's devices or hosts.

  bool operator==(const Choice&) const = default;
};

// A proof that no plan has max load below `bound`.
//
// Suppose a plan has max load <= bound - 1. It uses only cuts whose shard fits some allowed device
// in that time and in its memory. Weigh every device's load by weight[d], every host's network load
// by host_weight, and every byte in scope by price[tier] << kPriceScale: each table adds at least
// the cheapest of its remaining cuts, wherever it lies. If these minima together, less the price of
// all memory in scope, exceed (bound - 1) x (sum of weights << kSlowdownShift), there is no such
// plan. In scope are the devices with weight > 0 and their hosts; a table that may leave it adds 0.
struct Certificate {
  static constexpr int kPriceScale = 30;

  Ticks bound = 0;
  std::vector<std::int64_t> weight;  // By device, 0 .. 2^40.
  std::int64_t host_weight = 0;      // Weight of every host in scope.
  std::array<std::int64_t, kTiers> price{};

  bool operator==(const Certificate&) const = default;
};

// Max load and bytes of one device. Host bytes and network load are in HostUse.
struct DeviceUse {
  Ticks load = 0;
  std::int64_t bytes = 0;
};
struct HostUse {
  Ticks network_load = 0;
  TierBytes bytes{};
};

struct Solution {
  std::vector<Choice> choices;  // By table of the canonical problem.
  std::vector<DeviceUse> devices;
  std::vector<HostUse> hosts;
  Ticks max_load = 0;
  Ticks lower_bound = 0;   // The best proven: the certificate's, or the search's above it.
  Ticks search_bound = 0;  // 0, or what the exhaustive search proved (no certificate).
  Certificate certificate;
  std::int64_t operations = 0;  // Spent; the budget is in the same unit.
};

// SHA-256 in hexadecimal over the canonical text of the choices.
std::string PlanHash(const Problem& canonical, const Solution& solution);

// SHA-256 of one input of the plan: compare part by part to name what changed.
struct ProblemDigest {
  std::string tables, topology, rules, options;
  bool operator==(const ProblemDigest&) const = default;
};
ProblemDigest DigestOf(const Problem& canonical);
// "topology" or another part's name; empty when nothing changed.
std::string FirstDifference(const ProblemDigest& a, const ProblemDigest& b);

}  // namespace embla::planner
