// Decides when the units of a job are frozen: those that have caught up wait for each other, still
// taking updates, and are handed over together. Each hand-over is a new version of the plan for
// every client and node, so there are few, and each is short.
//
// A batch begins when it is full, when nothing else is being copied, or when a unit has waited for
// `linger`; while units of an earlier batch are frozen, no sooner than `linger` after that one
// began. So there are at most 1 / linger batches per second, unless every batch is full.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "server/migration/move_ids.h"

namespace embla {

struct FreezeBatchOptions {
  absl::Duration linger = absl::Milliseconds(150);
  // Frozen at one time: each is a write of their commit.
  std::size_t units_max = 48;
  // Most bytes left to send of a batch; bounds the pause.
  std::int64_t bytes_max = std::int64_t{16} << 20;
  // Most bytes left to send of one unit: MoverOptions::behind_max chunks.
  std::int64_t unit_bytes_max = std::int64_t{2} << 20;
};

// Thread safety: none.
class FreezeBatches {
 public:
  struct Waiting {
    UnitId unit;
    absl::Time since;        // When it had caught up.
    std::int64_t bytes = 0;  // Bytes of the whole unit.
  };
  struct Frozen {
    std::size_t units = 0;
    std::int64_t bytes = 0;  // See LeftBytes.
  };

  explicit FreezeBatches(const FreezeBatchOptions& options) : options_(options) {}

  // The first of `waiting` that are to be frozen now, perhaps none. `others_come`: more units may
  // catch up.
  std::vector<UnitId> Next(std::span<const Waiting> waiting, const Frozen& frozen, bool others_come,
                           absl::Time now);

  // Returns how many bytes may be left to send of a unit of `bytes` when it is frozen.
  std::int64_t LeftBytes(std::int64_t bytes) const;

 private:
  const FreezeBatchOptions options_;
  absl::Time began_ = absl::InfinitePast();  // The last batch.
};

}  // namespace embla
