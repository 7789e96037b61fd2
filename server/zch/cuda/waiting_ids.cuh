// One bucket's waiting ids (server/zch/candidate_block.h), in the hands of a warp. Thread l alone
// reads and writes place l of every line, and thread 0 what lines count: no thread waits for
// another's writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "server/zch/candidate_block.h"
#include "server/zch/cuda/device_groups.h"
#include "server/zch/saturating.h"

namespace embla::zch::cuda {

namespace device = kernels::cuda;

class WaitingIds {
 public:
  static constexpr bool kCounts = true;

  __device__ WaitingIds(const device::Group& warp, const DeviceGroups& groups, std::uint32_t bucket)
      : warp_(warp),
        layout_(groups.candidates.layout),
        most_(groups.candidates.most),
        block_(groups.candidates.blocks +
               (bucket - groups.first_group / groups.groups_per_bucket) * layout_.bytes()),
        size_(OfThread0(block_ + layout_.size_at())) {}

  // Place where an id waits; lane < 0: it does not, and count is 0.
  struct Found {
    std::uint32_t line = 0;
    int lane = -1;
    std::uint32_t count = 0;
  };
  __device__ __forceinline__ Found Find(std::int64_t id) const {
    std::uint32_t line = HomeLineOf(RowId{id}, layout_.lines);
    for (std::uint32_t i = 0; i < layout_.lines; ++i) {
      const std::uint32_t count = CountIn(line);
      const unsigned having = device::LanesWhere(warp_, count != 0 && IdIn(line) == id);
      if (having != 0) {
        const unsigned lane = device::FirstBit(having) - 1;
        return {line, static_cast<int>(lane), device::FromLane(warp_, count, lane)};
      }
      if (OfThread0(PassedAt(line)) == 0) break;
      line = After(line);
    }
    return {};
  }

  // CandidateCounts::Add.
  __device__ __forceinline__ void Add(std::int64_t id, const Found& found, std::uint32_t count) {
    if (found.lane < 0) {
      while (size_ >= most_) Halve();
      Insert(id, count);
    } else if (static_cast<int>(warp_.lane) == found.lane) {
      device::Store<std::uint32_t>(CountAt(found.line), AddSaturating(found.count, count));
    }
  }

  __device__ __forceinline__ void Forget(std::int64_t id) {
    const Found found = Find(id);
    if (found.lane < 0) return;
    if (static_cast<int>(warp_.lane) == found.lane) {
      device::Store<std::uint32_t>(CountAt(found.line), 0);
    }
    Leave(id, found.line);
  }

  // When all is done.
  __device__ __forceinline__ void Save() const {
    if (warp_.lane == 0) device::Store<std::uint32_t>(block_ + layout_.size_at(), size_);
  }

 private:
  __device__ __forceinline__ std::byte* CountAt(std::uint32_t line) const {
    const std::size_t place = std::size_t{line} * kPlacesPerLine + warp_.lane;
    return block_ + layout_.counts_at() + place * sizeof(std::uint32_t);
  }
  __device__ __forceinline__ std::byte* IdOfPlaceAt(std::uint32_t line) const {
    const std::size_t place = std::size_t{line} * kPlacesPerLine + warp_.lane;
    return block_ + place * sizeof(std::int64_t);
  }
  __device__ __forceinline__ std::byte* PassedAt(std::uint32_t line) const {
    return block_ + layout_.passed_at() + std::size_t{line} * sizeof(std::uint32_t);
  }
  // Values of this thread's place.
  __device__ __forceinline__ std::uint32_t CountIn(std::uint32_t line) const {
    return device::Load<std::uint32_t>(CountAt(line));
  }
  __device__ __forceinline__ std::int64_t IdIn(std::uint32_t line) const {
    return static_cast<std::int64_t>(device::Load<unsigned long long>(IdOfPlaceAt(line)));
  }
  // A number that thread 0 alone writes, and reads.
  __device__ __forceinline__ std::uint32_t OfThread0(const std::byte* at) const {
    return device::FromLane(warp_, warp_.lane == 0 ? device::Load<std::uint32_t>(at) : 0, 0);
  }
  __device__ __forceinline__ std::uint32_t After(std::uint32_t line) const {
    return line + 1 == layout_.lines ? 0 : line + 1;
  }

  __device__ __forceinline__ void CountPassed(std::uint32_t line, std::uint32_t by) const {
    if (warp_.lane != 0) return;
    std::byte* const at = PassedAt(line);
    device::Store<std::uint32_t>(at, device::Load<std::uint32_t>(at) + by);
  }

  // The id's place in `line` is empty.
  __device__ __forceinline__ void Leave(std::int64_t id, std::uint32_t line) {
    for (std::uint32_t at = HomeLineOf(RowId{id}, layout_.lines); at != line; at = After(at)) {
      CountPassed(at, ~std::uint32_t{0});  // One less.
    }
    --size_;
  }

  // Requires: it does not wait, and there is a place.
  __device__ __forceinline__ void Insert(std::int64_t id, std::uint32_t count) {
    std::uint32_t line = HomeLineOf(RowId{id}, layout_.lines);
    unsigned empty = device::LanesWhere(warp_, CountIn(line) == 0);
    for (; empty == 0; empty = device::LanesWhere(warp_, CountIn(line) == 0)) {
      CountPassed(line, 1);
      line = After(line);
    }
    if (warp_.lane == device::FirstBit(empty) - 1) {
      device::Store<unsigned long long>(IdOfPlaceAt(line), static_cast<unsigned long long>(id));
      device::Store<std::uint32_t>(CountAt(line), count);
    }
    ++size_;
  }

  // All counts become half of themselves; zeros are forgotten.
  __device__ void Halve() {
    for (std::uint32_t line = 0; line < layout_.lines; ++line) {
      const std::uint32_t count = CountIn(line);
      const std::int64_t id = IdIn(line);
      if (count != 0) device::Store<std::uint32_t>(CountAt(line), count / 2);
      for (unsigned gone = device::LanesWhere(warp_, count == 1); gone != 0; gone &= gone - 1) {
        Leave(device::FromLane(warp_, id, device::FirstBit(gone) - 1), line);
      }
    }
  }

  const device::Group& warp_;
  const CandidateLayout layout_;
  const std::uint32_t most_;
  std::byte* const block_;
  std::uint32_t size_;  // The same in all threads.
};

}  // namespace embla::zch::cuda
