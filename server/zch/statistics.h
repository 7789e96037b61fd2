// Counters of a slot map.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "server/zch/batch.h"

namespace embla::zch {

// Since the map was made; of the buckets that it held at the time. Ids are counted per position
// in a batch, inserts and evictions per slot; an inserted id's further positions are hits.
struct Statistics {
  std::uint64_t hits = 0;  // Applied.
  std::uint64_t inserts = 0;
  std::uint64_t not_admitted = 0;
  std::uint64_t full = 0;
  std::uint64_t read_hits = 0;  // Read-only.
  std::uint64_t read_missing = 0;
  std::uint64_t not_here = 0;  // Either way.
  // Inserts whose home lane another id had: by plain hashing they would have shared a row.
  std::uint64_t collisions_avoided = 0;
  std::array<std::uint64_t, kEvictionReasons> evictions = {};  // By reason.
  std::uint64_t evicted_age_sum = 0;  // In steps, from the last touch to the eviction.

  Statistics& operator+=(const Statistics& other) {
    hits += other.hits;
    inserts += other.inserts;
    not_admitted += other.not_admitted;
    full += other.full;
    read_hits += other.read_hits;
    read_missing += other.read_missing;
    not_here += other.not_here;
    collisions_avoided += other.collisions_avoided;
    for (std::size_t i = 0; i < evictions.size(); ++i) evictions[i] += other.evictions[i];
    evicted_age_sum += other.evicted_age_sum;
    return *this;
  }
  bool operator==(const Statistics&) const = default;
};

// The map's contents now.
struct Survey {
  std::uint32_t buckets = 0;
  std::uint64_t slots = 0;  // For ids, of the buckets held.
  std::uint64_t residents = 0;
  std::uint64_t residents_of_fullest_bucket = 0;
  std::uint64_t full_groups = 0;
  std::uint64_t waiting = 0;  // Candidates that are counted but have no slot.
  std::uint64_t age_sum = 0;  // In steps since the last touch.
  std::uint64_t oldest_age = 0;
  std::uint64_t latest_step = 0;  // Step of the latest touch of an id that is in the map.

  Survey& operator+=(const Survey& other) {
    buckets += other.buckets;
    slots += other.slots;
    residents += other.residents;
    residents_of_fullest_bucket =
        std::max(residents_of_fullest_bucket, other.residents_of_fullest_bucket);
    full_groups += other.full_groups;
    waiting += other.waiting;
    age_sum += other.age_sum;
    oldest_age = std::max(oldest_age, other.oldest_age);
    latest_step = std::max(latest_step, other.latest_step);
    return *this;
  }
  bool operator==(const Survey&) const = default;
  double occupancy() const {
    return slots == 0 ? 0.0 : static_cast<double>(residents) / static_cast<double>(slots);
  }
  double mean_age() const {
    return residents == 0 ? 0.0 : static_cast<double>(age_sum) / static_cast<double>(residents);
  }
};

}  // namespace embla::zch
