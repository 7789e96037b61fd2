// A table's slot map on the device: its groups there, and on the host what the host keeps of a
// bucket. The same verbs as SlotMap's, for tests that hold one to the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/device_memory.h"
#include "kernels/cuda/testing/recording.h"
#include "server/zch/bucket_block.h"
#include "server/zch/candidate_block.h"
#include "server/zch/cuda/apply.h"
#include "server/zch/cuda/sweep.h"
#include "server/zch/slot_map.h"

namespace embla::zch {

class DeviceTable {
 public:
  // Holds no bucket.
  explicit DeviceTable(const SlotMapOptions& options)
      : options_(options),
        held_(options.buckets),
        states_(options.buckets, BucketState(options.eviction_history)),
        groups_(nullptr, GroupBytes() * options.buckets + kAlignment),
        device_held_(nullptr, options.buckets),
        candidates_(std::vector<std::byte>(CandidateBytes() * options.buckets)),
        collisions_avoided_(std::vector<std::uint64_t>{0}) {
    Upload();
  }

  // Empty.
  void AddBucket(std::uint32_t bucket) {
    const std::vector<SlotGroup> empty(options_.groups_per_bucket());
    SetBucket(bucket, std::as_bytes(std::span(empty)), BucketState(options_.eviction_history));
    SetCandidates(bucket, std::vector<std::byte>(CandidateBytes()));
  }
  void RemoveBucket(std::uint32_t bucket) {
    held_[bucket] = 0;
    Upload();
  }
  // The block's groups are the device's, byte by byte.
  void ImportBucket(std::span<const std::byte> bytes) {
    auto block = DecodeBucket(options_, bytes);
    ASSERT_THAT(block, testing::IsOk());
    if (CandidateBytes() > 0) {
      SetCandidates(block->bucket,
                    EncodeCandidates(CandidateLayoutOf(options_), block->state.candidates));
    }
    SetBucket(block->bucket, block->groups, std::move(block->state));
  }
  std::vector<std::byte> ExportBucket(std::uint32_t bucket) const {
    std::vector<SlotGroup> groups(options_.groups_per_bucket());
    kernels::cuda::CopyToHost(groups.data(), BucketAt(bucket), GroupBytes());
    BucketState state = states_[bucket];
    if (CandidateBytes() > 0) {
      std::vector<std::byte> waiting(CandidateBytes());
      kernels::cuda::CopyToHost(waiting.data(), CandidatesAt(bucket), waiting.size());
      state.candidates = DecodeCandidates(CandidateLayoutOf(options_), waiting);
    }
    for (const SlotGroup& group : groups) {
      state.residents += kLanes - std::count(group.tags, group.tags + kLanes, 0);
    }
    const Buffer block = EncodeBucket(options_, bucket, groups, state);
    return {block.bytes().begin(), block.bytes().end()};
  }

  // Recorded and replayed, as a CUDA graph can hold it.
  Answer Apply(const Batch& batch) {
    const std::size_t count = batch.ids.size();
    const kernels::cuda::OnDevice ids(batch.ids);
    const kernels::cuda::OnDevice counts(batch.counts);
    const kernels::cuda::OnDevice ttls(batch.ttls);
    const kernels::cuda::OnDevice slots(nullptr, count * sizeof(std::int64_t));
    const kernels::cuda::OnDevice outcomes(nullptr, count);
    const kernels::cuda::OnDevice evictions(nullptr, count * sizeof(cuda::DeviceEviction));
    const kernels::cuda::OnDevice evicted(nullptr, sizeof(std::uint32_t));
    std::size_t bytes = 0;
    EXPECT_EQ(cuda::ApplyBytes(count, &bytes), 0);
    const kernels::cuda::OnDevice workspace(nullptr, bytes);
    const cuda::DeviceBatch on_device{ids.As<std::int64_t>(),
                                      batch.counts.empty() ? nullptr : counts.As<std::uint32_t>(),
                                      batch.ttls.empty() ? nullptr : ttls.As<std::uint32_t>(),
                                      count,
                                      batch.clock,
                                      batch.admits_all};
    kernels::cuda::Recording recording([&](kernels::cuda::StreamHandle stream) {
      EXPECT_EQ(cuda::ApplyAsync(options_, groups(), on_device,
                                 {slots.As<std::int64_t>(), outcomes.As<std::uint8_t>(),
                                  evictions.As<cuda::DeviceEviction>(), evicted.As<std::uint32_t>(),
                                  collisions_avoided_.As<std::uint64_t>()},
                                 {workspace.data(), bytes}, stream),
                0);
    });
    recording.Replay();
    launches_ = recording.launches();
    Answer answer;
    answer.slots.resize(count);
    answer.outcomes.resize(count);
    kernels::cuda::CopyToHost(answer.slots.data(), slots.data(), count * sizeof(ZchSlot));
    kernels::cuda::CopyToHost(answer.outcomes.data(), outcomes.data(), count);
    answer.evictions = TakeEvictions(evictions, evicted, batch.clock.step);
    for (const Outcome outcome : answer.outcomes) Count(outcome);
    return answer;
  }

  void Sweep(const cuda::DeviceSweep& sweep, std::uint64_t step, std::vector<Eviction>& evictions) {
    const std::uint32_t buckets = sweep.bucket_end - sweep.bucket_begin;
    const kernels::cuda::OnDevice swept(
        nullptr, buckets * options_.slots_per_bucket() * sizeof(cuda::DeviceEviction));
    const kernels::cuda::OnDevice count(nullptr, sizeof(std::uint32_t));
    std::size_t bytes = 0;
    EXPECT_EQ(cuda::SweepBytes(groups(), buckets, &bytes), 0);
    const kernels::cuda::OnDevice workspace(nullptr, bytes);
    EXPECT_EQ(cuda::SweepAsync(options_, groups(), sweep,
                               {swept.As<cuda::DeviceEviction>(), count.As<std::uint32_t>()},
                               {workspace.data(), bytes}, nullptr),
              0);
    for (const Eviction& eviction : TakeEvictions(swept, count, step)) {
      evictions.push_back(eviction);
    }
  }
  void HalveCounts() { EXPECT_EQ(cuda::HalveCountsAsync(options_, groups(), nullptr), 0); }

  Statistics statistics() const {
    Statistics all = statistics_;
    collisions_avoided_.CopyTo(&all.collisions_avoided);
    return all;
  }

  // Number of kernels that the latest Apply launched.
  std::size_t launches() const { return launches_; }

  cuda::DeviceGroups groups() const {
    return {BucketAt(0),
            device_held_.As<std::uint8_t>(),
            options_.buckets,
            options_.groups_per_bucket(),
            options_.reserved_lanes,
            0,
            {CandidateBytes() == 0 ? nullptr : candidates_.data(), CandidateLayoutOf(options_),
             options_.candidates_per_bucket()}};
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  std::size_t GroupBytes() const { return options_.groups_per_bucket() * sizeof(SlotGroup); }
  std::byte* BucketAt(std::uint32_t bucket) const {
    const auto address = reinterpret_cast<std::uintptr_t>(groups_.data());
    return groups_.data() + (kAlignment - address % kAlignment) % kAlignment +
           bucket * GroupBytes();
  }
  // The block of the ids that wait for a slot of the bucket; there is one with admission by count.
  std::size_t CandidateBytes() const { return CandidateLayoutOf(options_).bytes(); }
  std::byte* CandidatesAt(std::uint32_t bucket) const {
    return candidates_.data() + bucket * CandidateBytes();
  }
  void SetCandidates(std::uint32_t bucket, const std::vector<std::byte>& block) {
    if (!block.empty()) {
      kernels::cuda::CopyToDevice(CandidatesAt(bucket), block.data(), block.size());
    }
  }
  void Upload() { kernels::cuda::CopyToDevice(device_held_.data(), held_.data(), held_.size()); }
  void SetBucket(std::uint32_t bucket, std::span<const std::byte> groups, BucketState state) {
    kernels::cuda::CopyToDevice(BucketAt(bucket), groups.data(), groups.size());
    states_[bucket] = std::move(state);
    states_[bucket].residents = 0;  // The groups tell.
    held_[bucket] = 1;
    Upload();
  }

  std::vector<Eviction> TakeEvictions(const kernels::cuda::OnDevice& evictions,
                                      const kernels::cuda::OnDevice& count, std::uint64_t step) {
    std::uint32_t found = 0;
    kernels::cuda::CopyToHost(&found, count.data(), sizeof(found));
    std::vector<cuda::DeviceEviction> taken(found);
    kernels::cuda::CopyToHost(taken.data(), evictions.data(), found * sizeof(taken[0]));
    std::vector<Eviction> answer;
    for (const cuda::DeviceEviction& each : taken) {
      const Eviction eviction{RowId{each.id}, ZchSlot{each.slot},
                              static_cast<EvictionReason>(each.reason), each.last_step, step};
      states_[each.slot / options_.slots_per_bucket()].history.Add(eviction);
      ++statistics_.evictions[each.reason];
      if (step > each.last_step) statistics_.evicted_age_sum += step - each.last_step;
      answer.push_back(eviction);
    }
    return answer;
  }

  void Count(Outcome outcome) {
    statistics_.hits += outcome == Outcome::kHit;
    statistics_.inserts += outcome == Outcome::kInserted;
    statistics_.not_admitted += outcome == Outcome::kNotAdmitted;
    statistics_.full += outcome == Outcome::kFull;
    statistics_.not_here += outcome == Outcome::kNotHere;
  }

  const SlotMapOptions options_;
  std::vector<std::uint8_t> held_;
  std::vector<BucketState> states_;  // Histories; residents are 0.
  kernels::cuda::OnDevice groups_;
  kernels::cuda::OnDevice device_held_;
  kernels::cuda::OnDevice candidates_;
  kernels::cuda::OnDevice collisions_avoided_;
  Statistics statistics_;
  std::size_t launches_ = 0;
};

}  // namespace embla::zch
