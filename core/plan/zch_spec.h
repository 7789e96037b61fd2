// How a ZCH table gives rows to ids (docs/zch.md): a part of the table's spec, fixed at creation.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/plan/id_place.h"

namespace embla {
namespace zch {

inline constexpr std::uint32_t kLanes = 64;  // Slots of a group.
inline constexpr std::uint32_t kBucketsDefault = 768;
inline constexpr std::uint32_t kBucketsMax = 65536;
// Most groups in a bucket, so that a slot within a bucket fits 32 bits.
inline constexpr std::int64_t kGroupsPerBucketMax = std::int64_t{1} << 25;
// Bytes per slot: the slot map's record of it (server/zch/slot_group.h).
inline constexpr std::int64_t kBytesPerSlot = 21;

inline constexpr std::uint64_t kEvictionBufferBytesMax = std::uint64_t{1} << 36;

// The slot of a full group that makes room. Never one that the same step touched; equal ones: the
// least recently touched, then the lowest lane.
//   kLru          the least recently touched
//   kLfu          the smallest count of touches
//   kDistanceLfu  the smallest count / (age + 1)^distance_exponent, age in steps
//   kTtl          of the expired ones, the one that expired first. A touch sets the expiry to
//                 now + TTL, never back. Nothing expired: see evict_unexpired
enum class Policy : std::uint8_t { kLru = 1, kLfu = 2, kDistanceLfu = 3, kTtl = 4 };

// The unseen ids that get a slot.
//   kAll          every one
//   kCount        one that has been seen admission_count times. Counts are exact while no more ids
//                 of a bucket wait than it has slots; one more, and all counts of the bucket are
//                 halved, those that reach 0 forgotten, until there is room
//   kProbability  with admission_probability, drawn anew at each step by a hash of (seed, id, step)
enum class Admission : std::uint8_t { kAll = 0, kCount = 1, kProbability = 2 };

// The answer of a lookup for an id that has no row.
//   kInitial  the row that it would begin with: a function of (table seed, id, column)
//   kDefault  a row shared with other ids: of the reserved lanes, or, without any, the initial row
//             of kSharedRowId
//   kZero     zeros
//   kError    the whole call fails with OUT_OF_RANGE
enum class Unseen : std::uint8_t { kInitial = 0, kDefault = 1, kZero = 2, kError = 3 };
inline constexpr RowId kSharedRowId{-1};

}  // namespace zch

struct ZchSpec {
  std::uint32_t buckets = zch::kBucketsDefault;  // 1..kBucketsMax; they move between devices whole.
  zch::Policy policy = zch::Policy::kLru;
  std::uint32_t distance_exponent = 1;  // kDistanceLfu: 1 or 2.
  // kTtl: at least 1; training steps after the last touch. An update may state another for a
  // feature's ids; an id lives as long as the longest that it was promised.
  std::uint32_t ttl_steps = 0;
  // kTtl: in a group where nothing has expired, evict what expires first; else refuse the new id.
  bool evict_unexpired = false;
  zch::Admission admission = zch::Admission::kAll;
  std::uint32_t admission_count = 1;   // kCount: at least 1; an update counts an id once.
  float admission_probability = 1.0f;  // kProbability: 0..1.
  // Number of each group's 64 rows, the last ones, that no id owns: ids without a row of their own
  // read and train them. 0..63; above 0 only with Unseen::kDefault.
  std::uint32_t reserved_lanes = 0;
  zch::Unseen unseen = zch::Unseen::kInitial;
  // Bytes of evicted rows that each node keeps for readers, the latest ones. 0: none; at most
  // kEvictionBufferBytesMax.
  std::uint64_t eviction_buffer_bytes = 0;

  // Checks the values for a table of `rows` rows: InvalidArgument names the field, its value and
  // what is allowed.
  absl::Status Validate(std::int64_t rows) const;
  // `capacity`, rounded up to whole groups in every bucket. Requires: buckets >= 1.
  std::int64_t RoundUp(std::int64_t capacity) const;

  bool operator==(const ZchSpec&) const = default;
};

}  // namespace embla
