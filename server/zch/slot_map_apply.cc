// The two phases of a batch (slot_map.h).
#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "server/zch/admission.h"
#include "server/zch/probe.h"
#include "server/zch/saturating.h"
#include "server/zch/slot_map.h"

namespace embla::zch {
namespace {

constexpr std::size_t kChunk = 4096;      // Ids that one thread finds at a time.
constexpr std::size_t kMissesAhead = 16;  // Groups prefetched before they are inserted into.

void PrefetchForInsertion(const SlotGroup& group, Policy policy) {
  constexpr std::size_t kLine = 64;
  __builtin_prefetch(group.tags, 1);
  const auto* const steps = reinterpret_cast<const char*>(group.last_steps);
  for (std::size_t at = 0; at < sizeof(group.last_steps); at += kLine) {
    __builtin_prefetch(steps + at, 1);
  }
  if (policy == Policy::kLru) return;
  const auto* const words = reinterpret_cast<const char*>(group.words);
  for (std::size_t at = 0; at < sizeof(group.words); at += kLine) __builtin_prefetch(words + at, 1);
}

}  // namespace

// Inserts the misses of whole buckets, on one thread.
class SlotMap::Insertion {
 public:
  Insertion(SlotMap& map, const Batch& batch, Answer& answer)
      : map_(map), options_(map.options_), batch_(batch), answer_(answer) {}

  // Inserts misses [begin, end), all of one bucket.
  void InsertBucket(std::size_t begin, std::size_t end) {
    const std::vector<Miss>& misses = map_.misses_;
    bucket_ = map_.buckets_[misses[begin].group_number / map_.groups_.groups_per_bucket()].get();
    while (begin < end) {
      // Beyond the bucket too: batches often have few misses in each.
      if (begin + kMissesAhead < misses.size()) {
        PrefetchForInsertion(*map_.groups_.At(misses[begin + kMissesAhead].group_number),
                             options_.policy);
      }
      std::size_t next = begin + 1;
      while (next < end && misses[next].id == misses[begin].id) ++next;
      InsertId(begin, next);
      begin = next;
    }
  }

  const Statistics& statistics() const { return statistics_; }

 private:
  // Misses [begin, end) are all occurrences of one id.
  void InsertId(std::size_t begin, std::size_t end) {
    const Miss& miss = map_.misses_[begin];
    const RowId id{miss.id};
    SumUp(begin, end);
    int lane = -1;
    const Outcome outcome = IsAdmitted(id) ? Settle(begin, lane) : Refuse(id);
    ZchSlot slot = kNoSlot;
    if (outcome == Outcome::kInserted) {
      slot = map_.SlotOf(miss.group_number, lane);
      ++statistics_.inserts;
      statistics_.hits += end - begin - 1;
    } else {
      slot = map_.ReservedSlotOf(id, miss.group_number);
      (outcome == Outcome::kFull ? statistics_.full : statistics_.not_admitted) += end - begin;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t position = map_.misses_[i].position;
      answer_.slots[position] = slot;
      answer_.outcomes[position] =
          i > begin && outcome == Outcome::kInserted ? Outcome::kHit : outcome;
    }
  }

  // What all occurrences amount to.
  void SumUp(std::size_t begin, std::size_t end) {
    count_ = 0;
    word_ = 0;
    const bool is_ttl = options_.policy == Policy::kTtl;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t position = map_.misses_[i].position;
      count_ = AddSaturating(count_, batch_.counts.empty() ? 1 : batch_.counts[position]);
      if (is_ttl) word_ = std::max(word_, map_.TouchWord(batch_, position));
    }
    if (is_ttl) return;
    word_ = count_;
    if (options_.admission == Admission::kCount) {
      word_ = AddSaturating(word_, bucket_->candidates.CountOf(RowId{map_.misses_[begin].id}));
    }
  }

  bool IsAdmitted(RowId id) const {
    switch (options_.admission) {
      case Admission::kAll:
        return true;
      case Admission::kCount:
        return AddSaturating(bucket_->candidates.CountOf(id), count_) >= options_.admission_count;
      case Admission::kProbability:
        return Draw(id, batch_.clock.step, options_.seed, options_.admission_probability);
    }
    return false;
  }

  Outcome Refuse(RowId id) {
    if (options_.admission == Admission::kCount) {
      bucket_->candidates.Add(id, count_, options_.candidates_per_bucket());
    }
    return Outcome::kNotAdmitted;
  }

  // Gives the id of miss `begin` a lane, or answers kFull and changes nothing.
  Outcome Settle(std::size_t begin, int& lane) {
    const Miss& miss = map_.misses_[begin];
    SlotGroup& group = *map_.groups_.At(miss.group_number);
    const std::uint64_t empty = EmptyLanes(group) & FirstLanes(options_.lanes_for_ids());
    if (empty != 0) {
      lane = std::countr_zero(empty);
    } else {
      lane = VictimOf(options_, group, batch_.clock);
      if (lane < 0) return Outcome::kFull;
    }
    const Place place = map_.groups_.PlaceOf(RowId{miss.id});
    statistics_.collisions_avoided += group.tags[place.home_lane] != 0;
    if (empty == 0) {
      map_.evicted_[begin] = map_.Evict(
          {miss.group_number, lane, ReasonFor(group.words[lane]), batch_.clock.step}, statistics_);
    }
    FillLane(options_.policy, group, lane, {miss.id, place.tag, batch_.clock.step, word_});
    ++bucket_->residents;
    if (options_.admission == Admission::kCount) bucket_->candidates.Forget(RowId{miss.id});
    return Outcome::kInserted;
  }

  EvictionReason ReasonFor(std::uint32_t word) const {
    return options_.policy == Policy::kTtl && word <= batch_.clock.now ? EvictionReason::kExpired
                                                                       : EvictionReason::kReplaced;
  }

  SlotMap& map_;
  const SlotMapOptions& options_;
  const Batch& batch_;
  Answer& answer_;
  BucketState* bucket_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint32_t word_ = 0;
  Statistics statistics_;
};

std::uint32_t SlotMap::TouchWord(const Batch& batch, std::size_t position) const {
  if (options_.policy == Policy::kTtl) {
    return batch.features.empty() ? options_.ExpiryOf(batch.clock.now)
                                  : options_.ExpiryOf(batch.features[position], batch.clock.now);
  }
  return batch.counts.empty() ? 1 : batch.counts[position];
}

void SlotMap::Apply(const Batch& batch, Answer& answer, ParallelFor loop) {
  EMBLA_CHECK(batch.counts.empty() || batch.counts.size() == batch.ids.size());
  EMBLA_CHECK(batch.features.empty() || batch.features.size() == batch.ids.size());
  answer.slots.resize(batch.ids.size());
  answer.outcomes.resize(batch.ids.size());
  answer.evictions.clear();
  FindAndTouch(batch, answer, loop);
  GatherMisses();
  if (misses_.empty()) return;
  Mutex mu;
  loop(runs_.size() - 1, 1, [&](std::size_t begin, std::size_t end) {
    Insertion insertion(*this, batch, answer);
    for (std::size_t run = begin; run < end; ++run) {
      insertion.InsertBucket(runs_[run], runs_[run + 1]);
    }
    const MutexLock lock(mu);
    statistics_ += insertion.statistics();
  });
  for (const Eviction& eviction : evicted_) {
    if (eviction.slot != kNoSlot) answer.evictions.push_back(eviction);
  }
}

void SlotMap::FindAndTouch(const Batch& batch, Answer& answer, ParallelFor loop) {
  const std::size_t chunks = (batch.ids.size() + kChunk - 1) / kChunk;
  misses_of_chunks_.resize(std::max(misses_of_chunks_.size(), chunks));
  for (auto& misses : misses_of_chunks_) misses.clear();
  Mutex mu;
  loop(chunks, 1, [&](std::size_t begin, std::size_t end) {
    Statistics found;
    for (std::size_t chunk = begin; chunk < end; ++chunk) {
      found += options_.policy == Policy::kLru
                   ? FindAndTouchChunk<Touching::kStep>(batch, chunk, answer)
                   : FindAndTouchChunk<Touching::kStepAndWord>(batch, chunk, answer);
    }
    const MutexLock lock(mu);
    statistics_ += found;
  });
}

template <Touching kTouching>
Statistics SlotMap::FindAndTouchChunk(const Batch& batch, std::size_t chunk, Answer& answer) {
  const std::size_t first = chunk * kChunk;
  const auto ids = batch.ids.subspan(first, std::min(kChunk, batch.ids.size() - first));
  std::vector<Miss>& misses = misses_of_chunks_[chunk];
  Statistics found;
  ProbeAll<kTouching>(groups_, ids, [&](std::size_t i, const Probe& probe, int lane) {
    const std::size_t position = first + i;
    if (lane >= 0) {
      const std::uint32_t word =
          kTouching == Touching::kStepAndWord ? TouchWord(batch, position) : 0;
      Touch(options_.policy, *probe.group, lane, batch.clock.step, word);
      answer.slots[position] = SlotOf(probe.group_number, lane);
      answer.outcomes[position] = Outcome::kHit;
      ++found.hits;
    } else if (probe.group != nullptr) {
      misses.push_back({probe.group_number, ToInt(ids[i]), static_cast<std::uint32_t>(position)});
    } else {
      answer.slots[position] = kNoSlot;
      answer.outcomes[position] = Outcome::kNotHere;
      ++found.not_here;
    }
  });
  return found;
}

void SlotMap::GatherMisses() {
  misses_.clear();
  for (const auto& misses : misses_of_chunks_) {
    misses_.insert(misses_.end(), misses.begin(), misses.end());
  }
  std::sort(misses_.begin(), misses_.end());
  evicted_.assign(misses_.size(), Eviction{});
  runs_.clear();
  const std::uint64_t groups = groups_.groups_per_bucket();
  std::uint64_t bucket_end = 0;  // In group numbers, of the run in progress.
  for (std::size_t i = 0; i < misses_.size(); ++i) {
    if (misses_[i].group_number < bucket_end) continue;
    bucket_end = (misses_[i].group_number / groups + 1) * groups;
    runs_.push_back(i);
  }
  runs_.push_back(misses_.size());
}

}  // namespace embla::zch
