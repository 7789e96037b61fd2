// Maps an id of a ZCH table to its place: id -> bucket -> group of 64 slots. A pure function of the
// id and of two numbers that are fixed when the table is made, so it is the same in every process
// for ever.
//
//   hash   = SplitMix64(id)                      64 uniform bits, a bijection: no two ids share one
//   bucket = floor(hash * buckets / 2^64)        the unit of ownership, fixed for the table's life
//   group  = floor(fraction * groups / 2^64)     fraction = low 64 bits of hash * buckets
//   tag    = low 8 bits of hash, 1 in place of 0; a lane with tag 0 is empty
//   home   = bits 8..13 of hash                  the lane that plain hashing would have used
//
// The constants are part of the format of bucket blocks (docs/zch.md); id_place_test pins them.
#pragma once

#include <cstdint>

#include "core/base/ids.h"
#include "core/base/split_mix.h"

namespace embla::zch {

constexpr std::uint64_t HashId(RowId id) {
  return SplitMix64(static_cast<std::uint64_t>(ToInt(id)));
}

struct Place {
  std::uint32_t bucket = 0;
  std::uint32_t group = 0;  // Within the bucket.
  std::uint8_t tag = 0;     // Never 0.
  std::uint8_t home_lane = 0;

  bool operator==(const Place&) const = default;
};

__extension__ using Uint128 = unsigned __int128;

// Place::bucket alone.
constexpr std::uint32_t BucketOf(RowId id, std::uint32_t buckets) {
  return static_cast<std::uint32_t>((Uint128{HashId(id)} * buckets) >> 64);
}

// Requires: buckets >= 1, groups_per_bucket >= 1.
constexpr Place PlaceOf(RowId id, std::uint32_t buckets, std::uint32_t groups_per_bucket) {
  const std::uint64_t hash = HashId(id);
  const Uint128 scaled = Uint128{hash} * buckets;
  const auto fraction = static_cast<std::uint64_t>(scaled);
  const auto low = static_cast<std::uint8_t>(hash);
  Place place;
  place.bucket = static_cast<std::uint32_t>(scaled >> 64);
  place.group = static_cast<std::uint32_t>((Uint128{fraction} * groups_per_bucket) >> 64);
  place.tag = low == 0 ? 1 : low;
  place.home_lane = static_cast<std::uint8_t>((hash >> 8) % 64);
  return place;
}

}  // namespace embla::zch
