// The two phases of a batch (slot_map.h).
#include <algorithm>
#include <bit>
#include <numeric>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "server/zch/admission.h"
#include "server/zch/probe.h"
#include "server/zch/saturating.h"
#include "server/zch/slot_map.h"

namespace embla::zch {
namespace {

constexpr std::size_t kChunk = 4096;     // Ids that one thread finds at a time.
constexpr std::size_t kRunsAtOnce = 64;  // Buckets that one thread inserts into at a time.

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
//
// In blocks, so that the cache misses of many groups overlap: while one block is inserted, the
// lanes of the next are chosen, which tells which lines of ids and words it needs, and the tags and
// steps of the one after that are on their way.
class SlotMap::Insertion {
 public:
  Insertion(SlotMap& map, const Batch& batch, Answer& answer)
      : map_(map), options_(map.options_), batch_(batch), answer_(answer) {}

  // Inserts misses [begin, end): all of their buckets.
  void Insert(std::size_t begin, std::size_t end) {
    end_ = end;
    PrefetchBlock(begin);
    PrefetchBlock(begin + kBlock);
    ChooseBlock(begin);
    std::uint64_t bucket_end = 0;  // In group numbers.
    for (std::size_t at = begin; begin < end; begin += kBlock) {
      PrefetchBlock(begin + 2 * kBlock);
      ChooseBlock(begin + kBlock);
      const std::vector<Miss>& misses = map_.misses_;
      while (at < std::min(begin + kBlock, end)) {
        if (misses[at].group_number >= bucket_end) bucket_end = EnterBucket(misses[at]);
        std::size_t next = at + 1;
        while (next < end && misses[next].id == misses[at].id) ++next;
        InsertId(at, next);
        at = next;
      }
    }
  }

  const Statistics& statistics() const { return statistics_; }

 private:
  static constexpr std::size_t kBlock = 16;
  static constexpr int kNotChosen = -2;

  // Makes the bucket of `miss` the current one, and returns the end of its groups.
  std::uint64_t EnterBucket(const Miss& miss) {
    const std::uint64_t groups = map_.groups_.groups_per_bucket();
    const std::uint64_t bucket = miss.group_number / groups;
    bucket_ = map_.buckets_[bucket].get();
    return (bucket + 1) * groups;
  }

  void PrefetchBlock(std::size_t begin) const {
    for (std::size_t i = begin; i < std::min(begin + kBlock, end_); ++i) {
      PrefetchForInsertion(*map_.groups_.At(map_.misses_[i].group_number), options_.policy);
    }
  }

  // A lane for the first miss of each group: nothing changes the group before its turn.
  void ChooseBlock(std::size_t begin) {
    const std::vector<Miss>& misses = map_.misses_;
    for (std::size_t i = begin; i < std::min(begin + kBlock, end_); ++i) {
      int& lane = chosen_[i % (2 * kBlock)];
      lane = kNotChosen;
      if (i > 0 && misses[i - 1].group_number == misses[i].group_number) continue;
      const SlotGroup& group = *map_.groups_.At(misses[i].group_number);
      lane = ChooseLane(group);
      if (lane < 0) continue;
      __builtin_prefetch(&group.ids[lane], 1);
      if (options_.policy != Policy::kLru) __builtin_prefetch(&group.words[lane], 1);
    }
  }

  // The lowest empty lane, else the policy's victim, else -1.
  int ChooseLane(const SlotGroup& group) const {
    const std::uint64_t empty = EmptyLanes(group) & FirstLanes(options_.lanes_for_ids());
    return empty != 0 ? std::countr_zero(empty) : VictimOf(options_, group, batch_.clock);
  }

  // Misses [begin, end) are all occurrences of one id.
  void InsertId(std::size_t begin, std::size_t end) {
    const Miss& miss = map_.misses_[begin];
    const RowId id{miss.id};
    SumUp(begin, end);
    int lane = -1;
    const Outcome outcome = IsAdmitted(id) ? Settle(begin, lane) : Refuse(id);
    ZchSlot slot = kNoSlot;
    if (outcome == Outcome::kInserted) {
      slot = SlotAt(miss.group_number, lane);
      ++statistics_.inserts;
      statistics_.hits += end - begin - 1;
    } else {
      slot = ReservedSlotOf(options_, id, miss.group_number);
      (outcome == Outcome::kFull ? statistics_.full : statistics_.not_admitted) += end - begin;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t position = map_.misses_[i].position;
      answer_.slots[position] = slot;
      answer_.outcomes[position] =
          i > begin && outcome == Outcome::kInserted ? Outcome::kHit : outcome;
    }
  }

  // Adds up all occurrences of an id.
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
    if (batch_.admits_all) return true;
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
    lane = chosen_[begin % (2 * kBlock)];
    if (lane == kNotChosen) lane = ChooseLane(group);
    if (lane < 0) return Outcome::kFull;
    const Place place = map_.groups_.PlaceOf(RowId{miss.id});
    statistics_.collisions_avoided += group.tags[place.home_lane] != 0;
    if (group.tags[lane] != 0) {
      map_.evicted_[begin] = map_.Evict(
          {miss.group_number, lane, ReasonFor(group, lane), batch_.clock.step}, statistics_);
    }
    FillLane(options_.policy, group, lane, {miss.id, place.tag, batch_.clock.step, word_});
    ++bucket_->residents;
    if (options_.admission == Admission::kCount) bucket_->candidates.Forget(RowId{miss.id});
    return Outcome::kInserted;
  }

  EvictionReason ReasonFor(const SlotGroup& group, int lane) const {
    const bool expired = options_.policy == Policy::kTtl && group.words[lane] <= batch_.clock.now;
    return expired ? EvictionReason::kExpired : EvictionReason::kReplaced;
  }

  SlotMap& map_;
  const SlotMapOptions& options_;
  const Batch& batch_;
  Answer& answer_;
  std::size_t end_ = 0;     // End of the misses to insert.
  int chosen_[2 * kBlock];  // By position in the misses, modulo its size.
  BucketState* bucket_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint32_t word_ = 0;
  Statistics statistics_;
};

std::uint32_t SlotMap::TouchWord(const Batch& batch, std::size_t position) const {
  if (options_.policy == Policy::kTtl) {
    return options_.ExpiryOf(batch.ttls.empty() ? 0 : batch.ttls[position], batch.clock.now);
  }
  return batch.counts.empty() ? 1 : batch.counts[position];
}

void SlotMap::Apply(const Batch& batch, Answer& answer, ParallelFor loop) {
  EMBLA_CHECK(batch.counts.empty() || batch.counts.size() == batch.ids.size());
  EMBLA_CHECK(batch.ttls.empty() || batch.ttls.size() == batch.ids.size());
  answer.slots.resize(batch.ids.size());
  answer.outcomes.resize(batch.ids.size());
  answer.evictions.clear();
  FindAndTouch(batch, answer, loop);
  GatherMisses();
  if (misses_.empty()) return;
  Mutex mu;
  loop(runs_.size() - 1, kRunsAtOnce, [&](std::size_t begin, std::size_t end) {
    Insertion insertion(*this, batch, answer);
    insertion.Insert(runs_[begin], runs_[end]);
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
      answer.slots[position] = SlotAt(probe.group_number, lane);
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

// Sorts the misses into about as many bins by group number, then each bin: ids are hashed, so a bin
// has a few.
void SlotMap::SortMisses() {
  std::size_t count = 0;
  for (const auto& misses : misses_of_chunks_) count += misses.size();
  misses_.resize(count);
  const std::uint64_t groups = std::uint64_t{options_.buckets} * groups_.groups_per_bucket();
  int shift = 0;
  while (groups >> shift > count) ++shift;
  bins_.assign((groups >> shift) + 2, 0);
  const auto bin_of = [shift](const Miss& miss) { return miss.group_number >> shift; };
  for (const auto& misses : misses_of_chunks_) {
    for (const Miss& miss : misses) ++bins_[bin_of(miss) + 1];
  }
  std::partial_sum(bins_.begin(), bins_.end(), bins_.begin());
  for (const auto& misses : misses_of_chunks_) {
    for (const Miss& miss : misses) misses_[bins_[bin_of(miss)]++] = miss;
  }
  // Each bin begins where the one before has ended.
  std::size_t begin = 0;
  for (const std::uint32_t end : bins_) {
    std::sort(misses_.begin() + begin, misses_.begin() + end);
    begin = end;
  }
}

void SlotMap::GatherMisses() {
  SortMisses();
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
