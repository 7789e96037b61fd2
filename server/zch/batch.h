// Input and output of the slot map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/ids.h"
#include "server/zch/eviction_policy.h"

namespace embla::zch {

// A row of the table: bucket * slots_per_bucket + slot within the bucket. A bucket's rows are
// contiguous, so to routing and storage a ZCH table is a dense table with one granule per bucket.
enum class ZchSlot : std::int64_t {};
inline constexpr ZchSlot kNoSlot{-1};

enum class Outcome : std::uint8_t {
  kHit = 1,          // The id has this slot.
  kInserted = 2,     // Since this batch: the caller initialises the row. Once per id and batch.
  kMissing = 3,      // Read-only, and the id has no slot.
  kNotAdmitted = 4,  // Admission refused the id.
  kFull = 5,         // The group is full and the policy lets nothing go.
  kNotHere = 6,      // Another node has the bucket.
};
// Whether the slot belongs to the id. Otherwise it is the reserved one that the id shares with
// others, or kNoSlot; what such an id reads is the caller's choice.
constexpr bool OwnsSlot(Outcome outcome) {
  return outcome == Outcome::kHit || outcome == Outcome::kInserted;
}

enum class EvictionReason : std::uint8_t {
  kReplaced = 1,  // Made room for another id.
  kExpired = 2,   // Its TTL had passed.
  kIdle = 3,      // Untouched for too long.
  kRemoved = 4,   // By its id.
};
constexpr std::string_view NameOf(EvictionReason reason) {
  constexpr std::string_view kNames[] = {"", "replaced", "expired", "idle", "removed"};
  return kNames[static_cast<std::size_t>(reason)];
}
inline constexpr std::size_t kEvictionReasons = 5;  // Array size for counts by reason.

struct Eviction {
  RowId id{};
  ZchSlot slot = kNoSlot;
  EvictionReason reason{};
  std::uint64_t last_step = 0;  // When the id was last touched.
  std::uint64_t step = 0;       // When it was evicted.

  bool operator==(const Eviction&) const = default;
};

// Ids to find or insert. `counts` and `ttls` are empty or as long as `ids`.
struct Batch {
  std::span<const RowId> ids;             // Any; may repeat.
  std::span<const std::uint32_t> counts;  // Occurrences that an id stands for, >= 1; empty: 1.
  std::span<const std::uint32_t> ttls;    // kTtl, in ticks; 0, or empty: the table's.
  Clock clock;
  bool admits_all = false;  // Overrides the table's admission.
};

struct Answer {
  std::vector<ZchSlot> slots;  // By position in the batch, like outcomes.
  std::vector<Outcome> outcomes;
  // By ascending slot's group, then the id that took the slot. A slot that was evicted and given
  // away again in the same batch is both here and among the inserted.
  std::vector<Eviction> evictions;
};

// Buckets [begin, end), to sweep a table by parts; those that are not here are skipped.
struct BucketRange {
  std::uint32_t begin = 0;
  std::uint32_t end = kBucketsMax;
};

// Runs fn over disjoint ranges that cover [0, n), at most `grain` long, in any order on any
// threads, and returns when all are done: the signature of a thread pool's loop.
using RangeFunction = absl::FunctionRef<void(std::size_t begin, std::size_t end)>;
using ParallelFor = absl::FunctionRef<void(std::size_t n, std::size_t grain, RangeFunction fn)>;

// On the caller's thread.
inline void RunInline(std::size_t n, std::size_t grain, RangeFunction fn) {
  for (std::size_t begin = 0; begin < n; begin += grain) {
    fn(begin, begin + grain < n ? begin + grain : n);
  }
}

}  // namespace embla::zch
