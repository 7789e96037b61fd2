// A bucket on its way to another node or to a file: groups, waiting ids and eviction history as one
// flat little-endian block with a CRC32C. Grammar: docs/zch.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "server/zch/bucket_state.h"
#include "server/zch/slot_group.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch {

inline constexpr std::size_t kBucketBlockHeaderBytes = 40;

// The same bytes for the same content, however it came about.
Buffer EncodeBucket(const SlotMapOptions& options, std::uint32_t bucket,
                    std::span<const SlotGroup> groups, const BucketState& state);

struct BucketBlock {
  std::uint32_t bucket = 0;
  std::span<const std::byte> groups;  // SlotGroups as bytes within the block; any alignment.
  BucketState state{0};
};

// Believes nothing: every id must belong to its bucket, group and tag, be there once, and so on, so
// that a map that took the block in keeps its invariants. Errors: InvalidArgument (no block, or not
// of a table with these options), DataLoss (checksum, or content that contradicts itself).
absl::StatusOr<BucketBlock> DecodeBucket(const SlotMapOptions& options,
                                         std::span<const std::byte> bytes);

}  // namespace embla::zch
