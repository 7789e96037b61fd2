// The documented behaviour of a slot map, written a second time with maps and no cleverness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "server/zch/slot_map.h"

namespace embla::zch {

class ModelMap {
 public:
  struct Entry {
    std::uint64_t group;
    int lane;
    std::uint64_t last;
    std::uint64_t word;
  };

  explicit ModelMap(const SlotMapOptions& options) : options_(options) {}

  Answer Apply(const Batch& batch) {
    Answer answer;
    answer.slots.resize(batch.ids.size(), kNoSlot);
    answer.outcomes.resize(batch.ids.size());
    // Misses by (group, id).
    std::map<std::pair<std::uint64_t, std::int64_t>, std::vector<std::size_t>> misses;
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      const std::int64_t id = ToInt(batch.ids[i]);
      if (const auto it = entries_.find(id); it == entries_.end()) {
        misses[{GroupOf(id), id}].push_back(i);
      }
    }
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      const auto it = entries_.find(ToInt(batch.ids[i]));
      if (it == entries_.end()) continue;
      Entry& entry = it->second;
      entry.last = std::max(entry.last, batch.clock.step);
      Raise(entry, WordOf(batch, i));
      answer.slots[i] = SlotOf(entry);
      answer.outcomes[i] = Outcome::kHit;
    }
    for (const auto& [key, positions] : misses) Insert(batch, key.second, positions, answer);
    return answer;
  }

  void Remove(std::int64_t id, std::uint64_t step, std::vector<Eviction>& out) {
    if (entries_.count(id) != 0) out.push_back(Evict(id, EvictionReason::kRemoved, step));
  }

  template <typename Choose>
  void Sweep(EvictionReason reason, std::uint64_t step, const Choose& choose,
             std::vector<Eviction>& out) {
    for (auto& [group, lanes] : groups_) {
      const std::map<int, std::int64_t> residents = lanes;
      for (const auto& [lane, id] : residents) {
        if (choose(entries_.at(id))) out.push_back(Evict(id, reason, step));
      }
    }
  }

  void HalveCounts() {
    if (options_.policy != Policy::kLfu && options_.policy != Policy::kDistanceLfu) return;
    for (auto& [id, entry] : entries_) entry.word /= 2;
  }

  const std::unordered_map<std::int64_t, Entry>& entries() const { return entries_; }
  ZchSlot SlotOf(const Entry& entry) const {
    return ZchSlot{static_cast<std::int64_t>(entry.group * 64) + entry.lane};
  }
  std::uint64_t WaitingCount(std::int64_t id) const {
    const auto bucket = waiting_.find(BucketOf(id));
    if (bucket == waiting_.end()) return 0;
    const auto it = bucket->second.find(id);
    return it == bucket->second.end() ? 0 : it->second;
  }

 private:
  static constexpr std::uint64_t kMost32 = 0xffffffffu;

  std::uint64_t BucketOf(std::int64_t id) const {
    return PlaceOf(RowId{id}, options_.buckets, options_.groups_per_bucket()).bucket;
  }
  std::uint64_t GroupOf(std::int64_t id) const {
    const Place place = PlaceOf(RowId{id}, options_.buckets, options_.groups_per_bucket());
    return std::uint64_t{place.bucket} * options_.groups_per_bucket() + place.group;
  }
  std::uint64_t WordOf(const Batch& batch, std::size_t i) const {
    if (options_.policy != Policy::kTtl) return batch.counts.empty() ? 1 : batch.counts[i];
    std::uint64_t ttl = options_.ttl_ticks;
    if (!batch.ttls.empty() && batch.ttls[i] != 0) ttl = batch.ttls[i];
    return std::min(kMost32, batch.clock.now + ttl);
  }
  void Raise(Entry& entry, std::uint64_t word) const {
    if (options_.policy == Policy::kLru) return;
    entry.word = options_.policy == Policy::kTtl ? std::max(entry.word, word)
                                                 : std::min(kMost32, entry.word + word);
  }

  void Insert(const Batch& batch, std::int64_t id, const std::vector<std::size_t>& positions,
              Answer& answer) {
    std::uint64_t count = 0;
    Entry entry{GroupOf(id), -1, batch.clock.step, 0};
    for (const std::size_t i : positions) {
      count += batch.counts.empty() ? 1 : batch.counts[i];
      Raise(entry, WordOf(batch, i));
    }
    Outcome outcome = Outcome::kInserted;
    if (!batch.admits_all && !Admit(id, count, batch.clock.step)) {
      outcome = Outcome::kNotAdmitted;
    } else if (entry.lane = Lane(entry.group, batch.clock, answer); entry.lane < 0) {
      outcome = Outcome::kFull;
    } else {
      if (options_.policy == Policy::kLfu || options_.policy == Policy::kDistanceLfu) {
        entry.word = std::min(kMost32, entry.word + WaitingCount(id));
      }
      waiting_[BucketOf(id)].erase(id);
      entries_[id] = entry;
      groups_[entry.group][entry.lane] = id;
    }
    for (const std::size_t i : positions) {
      answer.outcomes[i] = outcome;
      if (outcome == Outcome::kInserted) {
        answer.slots[i] = SlotOf(entry);
        if (i != positions[0]) answer.outcomes[i] = Outcome::kHit;
      } else if (options_.reserved_lanes != 0) {
        answer.slots[i] = ReservedSlot(id);
      }
    }
  }

  ZchSlot ReservedSlot(std::int64_t id) const {
    const std::uint64_t high = SplitMix64(HashId(RowId{id})) >> 32;
    const std::uint64_t lane =
        64 - options_.reserved_lanes + ((high * options_.reserved_lanes) >> 32);
    return ZchSlot{static_cast<std::int64_t>(GroupOf(id) * 64 + lane)};
  }

  bool Admit(std::int64_t id, std::uint64_t count, std::uint64_t step) {
    if (options_.admission == Admission::kAll) return true;
    if (options_.admission == Admission::kProbability) {
      return Draw(RowId{id}, step, options_.seed, options_.admission_probability);
    }
    auto& waiting = waiting_[BucketOf(id)];
    if (WaitingCount(id) + count >= options_.admission_count) return true;
    if (waiting.count(id) == 0) {
      while (waiting.size() >= options_.candidates_per_bucket()) {
        std::unordered_map<std::int64_t, std::uint64_t> halved;
        for (const auto& [other, seen] : waiting) {
          if (seen / 2 != 0) halved[other] = seen / 2;
        }
        waiting = halved;
      }
    }
    waiting[id] += count;
    return false;
  }

  // A lane for a newcomer, after evicting if need be; -1: none.
  int Lane(std::uint64_t group, const Clock& clock, Answer& answer) {
    const auto& lanes = groups_[group];
    for (int lane = 0; lane < static_cast<int>(options_.lanes_for_ids()); ++lane) {
      if (lanes.count(lane) == 0) return lane;
    }
    int victim = -1;
    for (const auto& [lane, id] : lanes) {
      if (entries_.at(id).last >= clock.step) continue;
      if (victim < 0 || GoesBefore(entries_.at(id), entries_.at(lanes.at(victim)), clock)) {
        victim = lane;
      }
    }
    if (victim < 0) return -1;
    const Entry& entry = entries_.at(lanes.at(victim));
    EvictionReason reason = EvictionReason::kReplaced;
    if (options_.policy == Policy::kTtl) {
      if (entry.word <= clock.now) reason = EvictionReason::kExpired;
      if (entry.word > clock.now && !options_.evict_unexpired) return -1;
    }
    answer.evictions.push_back(Evict(lanes.at(victim), reason, clock.step));
    return victim;
  }

  bool GoesBefore(const Entry& a, const Entry& b, const Clock& clock) const {
    if (options_.policy == Policy::kLru) return a.last < b.last;
    if (options_.policy == Policy::kDistanceLfu) {
      const auto weight = [&](const Entry& entry) {
        const Uint128 distance = std::min(clock.step - entry.last, kMost32) + Uint128{1};
        return options_.distance_exponent == 1 ? distance : distance * distance;
      };
      const Uint128 left = a.word * weight(b);
      const Uint128 right = b.word * weight(a);
      return left != right ? left < right : a.last < b.last;
    }
    return std::tie(a.word, a.last) < std::tie(b.word, b.last);
  }

  Eviction Evict(std::int64_t id, EvictionReason reason, std::uint64_t step) {
    const Entry entry = entries_.at(id);
    groups_[entry.group].erase(entry.lane);
    entries_.erase(id);
    return {RowId{id}, SlotOf(entry), reason, entry.last, step};
  }

  const SlotMapOptions options_;
  std::unordered_map<std::int64_t, Entry> entries_;
  std::map<std::uint64_t, std::map<int, std::int64_t>> groups_;
  std::unordered_map<std::uint64_t, std::unordered_map<std::int64_t, std::uint64_t>> waiting_;
};

}  // namespace embla::zch
