// How fast a source sends chunks beside requests: moves give way to them.
//
// The sign is how long requests wait for a device. Processor, memory or network that moves take
// from this node or from another process of the machine show there before they show to a trainer.
// At rest, while nothing is sent, the pace learns what is usual. While chunks are sent and requests
// wait longer than `delay_ratio_max` times that, the rate halves with each look; while they do not,
// it grows, up to chunks_per_second_max: what moves cost beside their chunks, messages and commits,
// is paid by processes that this node does not see. Without requests there is no limit.
//
// Never less than chunks_per_second_min: however busy a node is, its moves get on.
// move_pace_test.cc runs the pace against a queue that chunks make longer.
#pragma once

#include "absl/time/time.h"

namespace embla {

struct MovePaceOptions {
  absl::Duration look_every = absl::Milliseconds(20);
  double delay_ratio_max = 2;
  absl::Duration delay_min = absl::Microseconds(100);  // A wait at rest counts as at least this.
  double speed_up = 1.25;                              // With each look.
  double chunks_per_second_min = 50;
  double chunks_per_second_max = 150;                   // Beside requests; also after a rest.
  absl::Duration rest_after = absl::Milliseconds(500);  // Without a chunk.
};

// Thread safety: none.
class MovePace {
 public:
  explicit MovePace(const MovePaceOptions& options)
      : options_(options), rate_(options.chunks_per_second_max) {}

  // `delay`: of requests lately, in the mean; zero: there were none (QueueDelay). Call it often;
  // the pace looks once per look_every. True: the rate was halved.
  bool Look(absl::Duration delay, absl::Time now);

  // Zero: a chunk may be sent now.
  absl::Duration Wait(absl::Time now) const;
  // A chunk is sent, whether it had to wait or not.
  void Take(absl::Time now);

  // Infinite: no limit.
  double chunks_per_second() const { return rate_; }
  absl::Duration delay_at_rest() const { return at_rest_; }

 private:
  MovePaceOptions options_;
  double rate_;
  absl::Duration at_rest_ = absl::ZeroDuration();  // Zero: not known.
  absl::Time looked_ = absl::InfinitePast();
  absl::Time taken_ = absl::InfinitePast();
  absl::Time next_ = absl::InfinitePast();  // When the next chunk may be sent.
};

}  // namespace embla
