// The flags of `table create` that make a ZCH table (docs/zch.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/plan/zch_spec.h"

namespace embla::cli {

// Empty words and zeros keep the defaults of ZchSpec.
struct ZchFlags {
  bool zch = false;           // Without it, no other flag may be given.
  std::int64_t capacity = 0;  // Ids that can have a row.
  std::uint32_t buckets = 0;
  std::string policy = {};     // lru, lfu, distance_lfu, distance_lfu:2, ttl:STEPS, ttl:STEPS:evict
  std::string admission = {};  // all, count:N, probability:P
  std::string unseen = {};     // initial, default, zero, error
  std::uint32_t reserved_lanes = 0;
  std::uint64_t eviction_buffer_bytes = 0;
};

// None for a table whose ids are rows. InvalidArgument names the flag and what is allowed.
absl::StatusOr<std::optional<ZchSpec>> ZchFromFlags(const ZchFlags& flags);

}  // namespace embla::cli
